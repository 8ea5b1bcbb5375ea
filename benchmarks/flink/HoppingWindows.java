import java.time.ZoneId;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Hopping windows of Flink SQL over CSV files: {@code HoppingWindows MODE INPUT MINUTES SINK RUNS}.
 *
 * MODE: batch or streaming; INPUT: a folder of files with key, time and value; MINUTES: the windows' size, hopping by one minute;
 * SINK: a folder for the rows, or "none"; RUNS: how often the job runs. Prints the milliseconds of each run.
 */
public class HoppingWindows {
    static final String COLUMNS = "k BIGINT, s TIMESTAMP(3), n BIGINT, total DOUBLE, top DOUBLE";

    public static void main(String[] arguments) throws Exception {
        EnvironmentSettings.Builder settings = EnvironmentSettings.newInstance();
        boolean isBatch = arguments[0].equals("batch");
        TableEnvironment tables = TableEnvironment.create((isBatch ? settings.inBatchMode() : settings.inStreamingMode()).build());
        tables.getConfig().set("parallelism.default", "2");
        tables.getConfig().setLocalTimeZone(ZoneId.of("UTC"));
        tables.executeSql("CREATE TABLE points (k BIGINT, ts TIMESTAMP(3), v DOUBLE, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"
            + " WITH ('connector' = 'filesystem', 'path' = '" + arguments[1] + "', 'format' = 'csv')");
        tables.executeSql("CREATE TABLE nothing (" + COLUMNS + ") WITH ('connector' = 'blackhole')");
        String sink = "nothing";
        if (!arguments[3].equals("none")) {
            sink = "results";
            tables.executeSql("CREATE TABLE results (" + COLUMNS + ") WITH ('connector' = 'filesystem', 'path' = '" + arguments[3]
                + "', 'format' = 'csv')");
        }
        for (int run = 0; run < Integer.parseInt(arguments[4]); run++) {
            long begun = System.nanoTime();
            tables.executeSql("INSERT INTO " + sink + " SELECT k, window_start, COUNT(v), SUM(v), MAX(v) FROM TABLE(HOP(TABLE points,"
                + " DESCRIPTOR(ts), INTERVAL '1' MINUTES, INTERVAL '" + arguments[2] + "' MINUTES(4)))"
                + " GROUP BY k, window_start, window_end").await();
            System.out.println("milliseconds " + (System.nanoTime() - begun) / 1_000_000);
        }
    }
}

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.ZoneId;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Statements of Flink SQL, as a stream: {@code Statements FILE RUNS}.
 *
 * FILE: statements, each ended by a semicolon at the end of a line. A SELECT runs RUNS times into a sink that forgets its rows,
 * and the milliseconds of each run, and those of processors, are printed; with 0 runs, the number of rows that hold in the end.
 */
public class Statements {
    public static void main(String[] arguments) throws Exception {
        TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().build());
        tables.getConfig().set("parallelism.default", "2");
        tables.getConfig().setLocalTimeZone(ZoneId.of("UTC"));
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        int runs = Integer.parseInt(arguments[1]);
        for (String statement : Files.readString(Path.of(arguments[0])).split(";\n")) {
            if (!statement.startsWith("SELECT")) {
                TableResult result = tables.executeSql(statement);
                if (statement.startsWith("INSERT")) {
                    result.await();
                }
                continue;
            }
            Table query = tables.sqlQuery(statement);
            for (int run = 0; run < runs; run++) {
                long begun = System.nanoTime(), processors = system.getProcessCpuTime();
                query.executeInsert(TableDescriptor.forConnector("blackhole").build()).await();
                System.out.println("milliseconds " + (System.nanoTime() - begun) / 1_000_000 + " "
                    + (system.getProcessCpuTime() - processors) / 1_000_000);
            }
            if (runs == 0) {
                long rows = 0;
                try (CloseableIterator<Row> changes = query.execute().collect()) {
                    while (changes.hasNext()) {
                        RowKind kind = changes.next().getKind();
                        rows += kind == RowKind.INSERT || kind == RowKind.UPDATE_AFTER ? 1 : -1;
                    }
                }
                System.out.println("rows " + rows);
            }
        }
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import org.apache.rocketmq.common.BrokerConfig;

/** Whether a broker knows settings. Each line is KEY=VALUE between tabs, and gets one: ok, or what there is no setter for. */
public class RocketMQSetters {
    public static void main(String[] none) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // a logger writes there, between the answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split("\t")));
            out.flush();
        }
        System.exit(0);
    }

    private static String answer(String[] said) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        for (String each : said) {
            String[] parts = each.split("=", 2);
            if (!set(broker, parts[0], parts[1])) {
                return "unknown: " + parts[0];
            }
        }
        return "ok";
    }

    private static boolean set(BrokerConfig broker, String key, String value) throws Exception {
        String setter = "set" + Character.toUpperCase(key.charAt(0)) + key.substring(1);
        for (Method each : BrokerConfig.class.getMethods()) {
            if (each.getName().equals(setter) && each.getParameterCount() == 1) {
                each.invoke(broker, each.getParameterTypes()[0] == long.class ? (Object) Long.valueOf(value) : Integer.valueOf(value));
                return true;
            }
        }
        return false;
    }
}

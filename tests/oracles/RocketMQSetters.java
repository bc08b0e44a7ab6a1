import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.BrokerConfig;

/**
 * Whether RocketMQ's own classes take settings. Each line is a question and gets one line; fields stand between tabs.
 *
 * consumer KEY=VALUE...  -> ok, or what DefaultMQPushConsumer has against it: no such setter, or what its start() checks
 * broker KEY=VALUE...    -> the same of a broker's configuration
 */
public class RocketMQSetters {
    public static void main(String[] none) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // a logger writes there, between the answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] said = line.split("\t");
            out.println(answer(said).replace('\n', ' '));
            out.flush();
        }
        System.exit(0);
    }

    private static String answer(String[] said) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("billing");
        Object target = said[0].equals("broker") ? new BrokerConfig() : consumer;
        for (int i = 1; i < said.length; i++) {
            String[] parts = said[i].split("=", 2);
            if (!set(target, parts[0], parts[1])) {
                return "unknown: " + parts[0];
            }
        }
        if (target == consumer) {
            MessageListenerConcurrently listener = (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            consumer.setMessageListener(listener);
            Field inner = DefaultMQPushConsumer.class.getDeclaredField("defaultMQPushConsumerImpl");
            inner.setAccessible(true);
            Method check = inner.getType().getDeclaredMethod("checkConfig"); // what start() begins with
            check.setAccessible(true);
            try {
                check.invoke(inner.get(consumer));
            } catch (InvocationTargetException refused) {
                return String.valueOf(refused.getCause().getMessage());
            }
        }
        return "ok";
    }

    private static boolean set(Object target, String key, String value) throws Exception {
        String setter = "set" + Character.toUpperCase(key.charAt(0)) + key.substring(1);
        for (Method each : target.getClass().getMethods()) {
            if (each.getName().equals(setter) && each.getParameterCount() == 1) {
                each.invoke(target, read(each.getParameterTypes()[0], value));
                return true;
            }
        }
        return false;
    }

    private static Object read(Class<?> type, String value) throws Exception {
        if (type == int.class) {
            return Integer.valueOf(value);
        }
        if (type == long.class) {
            return Long.valueOf(value);
        }
        if (type == boolean.class) {
            return Boolean.valueOf(value);
        }
        if (type.isEnum()) {
            return type.getField(value).get(null);
        }
        return value;
    }
}

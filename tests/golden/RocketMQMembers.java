import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;

/**
 * RocketMQ's own push consumers in a test's hands. Each line is a question and gets one line; fields stand between tabs.
 *
 * start NAME NAMESRV GROUP TOPIC=TAGS...  -> the client id of a member that handles whatever comes
 * stop NAME                               -> ok when it has left
 */
public class RocketMQMembers {
    private static final Map<String, DefaultMQPushConsumer> MEMBERS = new HashMap<>();

    public static void main(String[] none) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // a logger writes there, between the answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split("\t"));
            } catch (Exception failed) {
                answer = "error " + failed;
            }
            out.println(answer.replace('\n', ' '));
            out.flush();
        }
        System.exit(0);
    }

    private static String answer(String[] said) throws Exception {
        if (said[0].equals("stop")) {
            MEMBERS.remove(said[1]).shutdown();
            return "ok";
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(said[3]);
        consumer.setNamesrvAddr(said[2]);
        consumer.setInstanceName(said[1]);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        for (int i = 4; i < said.length; i++) {
            String[] parts = said[i].split("=", 2);
            consumer.subscribe(parts[0], parts[1]);
        }
        MessageListenerConcurrently handle = (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        consumer.registerMessageListener(handle);
        consumer.start();
        MEMBERS.put(said[1], consumer);
        return consumer.buildMQClientId();
    }
}

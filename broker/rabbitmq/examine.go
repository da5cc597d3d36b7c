package rabbitmq

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/doctor"
)

var _ doctor.BrokerChecker = (*Broker)(nil)

// requiredCapabilities are the server capabilities that this package uses.
var requiredCapabilities = []string{"publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked", "per_consumer_qos"}

const probeLimit = 4 * time.Second

// Server implements [doctor.BrokerChecker].
func (b *Broker) Server(ctx context.Context) ([]doctor.Check, error) {
	var checks []doctor.Check
	err := b.withAdmin(ctx, func(a *admin) error {
		properties := a.session.conn.Properties
		checks = append(checks,
			checkVersion(fmt.Sprint(properties["product"]), fmt.Sprint(properties["version"]), a.session.node),
			checkCapabilities(properties["capabilities"]))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return append(checks, b.probe(ctx), doctor.Check{
		Name: "broker limits", Severity: doctor.Skipped,
		Detail: "consumer_timeout and policies cannot be read over AMQP",
		Remedy: holdfast.Advice("check on a node: rabbitmqctl environment | grep consumer_timeout (a minute or more), and rabbitmqctl list_policies (none with a TTL, an expiry, a length or a delivery limit below 1000 on these queues)"),
	}), nil
}

func checkCapabilities(capabilities any) doctor.Check {
	f := doctor.Check{Name: "broker abilities", Severity: doctor.OK, Detail: "all required AMQP extensions are supported"}
	table, _ := capabilities.(amqp.Table)
	var missing []string
	for _, name := range requiredCapabilities {
		if supported, _ := table[name].(bool); !supported {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		f.Severity, f.Detail = doctor.Failed, "the server lacks "+strings.Join(missing, ", ")
		f.Remedy = holdfast.Advice("use RabbitMQ itself, without a proxy that changes AMQP")
	}
	return f
}

// probe publishes to a queue that does not exist, so nothing is stored. It publishes twice: RabbitMQ accepts the first
// message even during an alarm, and reports the alarm only after it.
func (b *Broker) probe(ctx context.Context) doctor.Check {
	f := doctor.Check{Name: "broker alarms", Severity: doctor.OK, Detail: "none"}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	nowhere := []broker.Message{{Queue: "holdfast.nowhere"}}
	outcomes, err := b.Publish(ctx, nowhere)
	if slices.Contains(outcomes, broker.Returned) {
		outcomes, err = b.Publish(ctx, nowhere)
	}
	if slices.Contains(outcomes, broker.Returned) {
		return f
	}
	f.Severity = doctor.Failed
	if blocked := b.Health().Blocked; blocked != "" {
		f.Detail = "RabbitMQ accepts no messages now: " + blocked
		f.Remedy = holdfast.Advice("free memory or disk space on its nodes; publishing then resumes without further action")
		return f
	}
	f.Detail = fmt.Sprintf("RabbitMQ did not confirm a message: %v", err)
	f.Remedy = holdfast.Advice(`see RabbitMQ's log; the user needs write permission for "amq.default"`)
	return f
}

// Compare implements [doctor.BrokerChecker].
func (b *Broker) Compare(ctx context.Context, objects []broker.Object) (checks []doctor.Check, err error) {
	err = b.withAdmin(ctx, func(a *admin) error {
		for _, o := range objects {
			f, err := a.compare(ctx, o)
			if err != nil {
				return err
			}
			checks = append(checks, f)
		}
		return nil
	})
	return checks, err
}

// difference matches RabbitMQ's reply to a declaration with other arguments.
var difference = regexp.MustCompile(`inequivalent arg '([^']+)' for .* received .* but current is (?:none|'([^']*)'|the value '([^']*)' of type '(\w+)')`)

// Arguments of a trial declaration, which compares a queue and can never create one. RabbitMQ refuses each of these
// arguments for a new queue of any type. For an existing queue, RabbitMQ compares the arguments that the queue type
// supports, which is one of the two. Measured with 3.10.8 and 4.0.5.
const (
	unknownToQuorum  = "x-max-priority"
	unknownToClassic = "x-quorum-initial-group-size"
	refused          = int64(-1)
)

// compare finds every argument that differs. RabbitMQ names only one difference per declaration. So compare repeats the
// declaration with the actual value of that argument.
func (a *admin) compare(ctx context.Context, o broker.Object) (doctor.Check, error) {
	f := doctor.Check{Name: o.Name, Severity: doctor.OK, Detail: "matches"}
	exists, _, err := a.inspect(ctx, o)
	if err != nil {
		return refusedCheck(f, err)
	}
	if !exists {
		return missingCheck(f), nil
	}
	if o.Kind == broker.Exchange { // a declaration that compares an exchange would also create it
		return f, nil
	}
	args, err := table(o)
	if err != nil {
		return f, err
	}
	differing := amqp.Table{}
	for args[unknownToQuorum] = refused; ; {
		err := a.request(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(o.Name, durable, notAutoDelete, notExclusive, waitForAnswer, args)
			return err
		})
		if err == nil {
			return differingCheck(f, o, differing), nil
		}
		if !replied(err, amqp.PreconditionFailed) || limited(err) {
			return refusedCheck(f, fmt.Errorf("compare %s: %w", o, unavailable(err)))
		}
		name, value, ok := readDifference(err)
		_, twice := differing[name]
		switch {
		case name == unknownToQuorum:
			delete(args, unknownToQuorum)
			args[unknownToClassic] = refused
		case !ok && strings.Contains(err.Error(), "invalid arg"): // the queue was deleted in the meantime
			return missingCheck(f), nil
		case !ok || twice:
			f.Severity, f.Detail, f.Remedy = doctor.Failed, "differs: "+plain(err).Error(), replaceHint(o)
			return f, nil
		default:
			if _, isNumber := args[name].(int64); isNumber { // RabbitMQ may format a number as a string
				if n, err := strconv.ParseInt(fmt.Sprint(value), 10, 64); err == nil {
					value = n
				}
			}
			differing[name] = value
			if args[name] = value; value == nil {
				delete(args, name)
			}
		}
	}
}

// readDifference returns the argument that RabbitMQ names and its actual value, or nil if the argument is not set.
func readDifference(err error) (name string, value any, ok bool) {
	match := difference.FindStringSubmatch(err.Error())
	if match == nil {
		return "", nil, false
	}
	name = match[1]
	switch number, err := strconv.ParseInt(match[3], 10, 64); {
	case match[2] != "":
		value = match[2]
	case match[4] == "":
	case match[4] != "longstr" && err == nil:
		value = number
	default:
		value = match[3]
	}
	return name, value, strings.HasPrefix(name, "x-")
}

// replaceHint returns a hint for a queue whose arguments cannot be changed.
func replaceHint(o broker.Object) holdfast.Hint {
	return holdfast.Hint{Kind: holdfast.HintReplaceQueue, Arg: o.Name}
}

func missingCheck(f doctor.Check) doctor.Check {
	f.Severity, f.Detail, f.Remedy = doctor.Failed, doctor.Missing, holdfast.Hint{Kind: holdfast.HintDeclareTopology}
	return f
}

var permissionHint = holdfast.Advice("give the user configure and read permission for all names with the prefix, with rabbitmqctl set_permissions")

// refusedCheck returns a failed check if err shows that the user lacks a permission. It returns every other error
// unchanged.
func refusedCheck(f doctor.Check, err error) (doctor.Check, error) {
	if !strings.Contains(err.Error(), "ACCESS_REFUSED") {
		return f, err
	}
	f.Severity, f.Detail = doctor.Failed, err.Error()
	f.Remedy = permissionHint
	return f, nil
}

// argumentRisks explains why an argument matters, unless its name explains that.
var argumentRisks = map[string]string{
	"x-queue-type":           "only a quorum queue survives the loss of a node",
	"x-delivery-limit":       "a message that is requeued more often is dead-lettered or dropped",
	"x-overflow":             "without reject-publish RabbitMQ dead-letters at most once",
	"x-dead-letter-strategy": "without at-least-once a dead letter can get lost",
	"x-message-ttl":          "it removes messages",
	"x-expires":              "it removes the queue",
	"x-max-length":           "it removes or refuses messages",
	"x-max-length-bytes":     "it removes or refuses messages",
}

func differingCheck(f doctor.Check, o broker.Object, differing amqp.Table) doctor.Check {
	if len(differing) == 0 {
		return f
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(differing)) {
		actual, want := "not set", "not set"
		if value := differing[name]; value != nil {
			actual = fmt.Sprint(value)
		}
		if value, ok := o.Args[name]; ok {
			want = fmt.Sprint(value)
		}
		part := fmt.Sprintf("%s is %s instead of %s", name, quoted(actual), quoted(want))
		if risk := argumentRisks[name]; risk != "" {
			part += " (" + risk + ")"
		}
		parts = append(parts, part)
	}
	f.Severity, f.Detail, f.Remedy = doctor.Failed, strings.Join(parts, "; "), replaceHint(o)
	return f
}

func quoted(text string) string {
	if text == "" {
		return `""`
	}
	return text
}

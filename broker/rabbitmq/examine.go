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

// abilities are what this package uses of what a server says it can do.
var abilities = []string{"publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked", "per_consumer_qos"}

// probeLimit is how long a message to nowhere may take to come back.
const probeLimit = 4 * time.Second

// Server implements doctor.BrokerChecker.
func (b *Broker) Server(ctx context.Context) ([]doctor.Check, error) {
	var checks []doctor.Check
	err := b.administer(ctx, func(a *admin) error {
		properties := a.session.conn.Properties
		checks = append(checks,
			judgeVersion(fmt.Sprint(properties["product"]), fmt.Sprint(properties["version"]), a.session.node),
			judgeAbilities(properties["capabilities"]))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return append(checks, b.probe(ctx), doctor.Check{
		Name: "broker limits", Severity: doctor.Skipped,
		Detail: "AMQP tells neither consumer_timeout nor policies",
		Remedy: holdfast.Advice("look on a node: rabbitmqctl environment | grep consumer_timeout (a minute or more), and rabbitmqctl list_policies (none with a TTL, an expiry, a length or a delivery limit below 1000 on these queues)"),
	}), nil
}

func judgeAbilities(told any) doctor.Check {
	f := doctor.Check{Name: "broker abilities", Severity: doctor.OK, Detail: "confirms, refusals and alarms are told"}
	table, _ := told.(amqp.Table)
	var lacking []string
	for _, name := range abilities {
		if can, _ := table[name].(bool); !can {
			lacking = append(lacking, name)
		}
	}
	if len(lacking) > 0 {
		f.Severity, f.Detail = doctor.Failed, "it lacks "+strings.Join(lacking, ", ")
		f.Remedy = holdfast.Advice("use RabbitMQ itself, without a proxy that changes AMQP")
	}
	return f
}

// probe publishes to a queue that does not exist, which leaves no trace. It does so twice: RabbitMQ tells a connection
// of an alarm only once it publishes, and takes the first message all the same.
func (b *Broker) probe(ctx context.Context) doctor.Check {
	f := doctor.Check{Name: "broker alarms", Severity: doctor.OK, Detail: "none: it takes messages"}
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
		f.Detail = "it takes no messages now: " + blocked
		f.Remedy = holdfast.Advice("free memory or disk on its nodes; everything goes on by itself then")
		return f
	}
	f.Detail = fmt.Sprintf("a message is not confirmed: %v", err)
	f.Remedy = holdfast.Advice(`look at RabbitMQ's log; the user needs the right to write to "amq.default"`)
	return f
}

// Compare implements doctor.BrokerChecker.
func (b *Broker) Compare(ctx context.Context, objects []broker.Object) (checks []doctor.Check, err error) {
	err = b.administer(ctx, func(a *admin) error {
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

// difference is RabbitMQ's answer to a declaration that does not fit.
var difference = regexp.MustCompile(`inequivalent arg '([^']+)' for .* received .* but current is (?:none|'([^']*)'|the value '([^']*)' of type '(\w+)')`)

// Trial arguments of a declaration that compares and can never create anything: each is refused for a new queue
// of any type. A queue that exists is compared by the arguments its type knows, and each type is
// without one of the two. Measured with 3.10.8 and 4.0.5.
const (
	unknownToQuorum  = "x-max-priority"
	unknownToClassic = "x-quorum-initial-group-size"
	refused          = int64(-1)
)

// compare finds every argument that differs. RabbitMQ names one of them, so it is asked again with that one as it is.
func (a *admin) compare(ctx context.Context, o broker.Object) (doctor.Check, error) {
	f := doctor.Check{Name: o.Name, Severity: doctor.OK, Detail: "as it should be"}
	exists, _, err := a.inspect(ctx, o)
	if err != nil {
		return refusedCheck(f, err)
	}
	if !exists {
		return missingCheck(f), nil
	}
	if o.Kind == broker.Exchange { // whatever compares an exchange would make it
		return f, nil
	}
	args, err := table(o)
	if err != nil {
		return f, err
	}
	differing := amqp.Table{}
	for args[unknownToQuorum] = refused; ; {
		err := a.ask(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(o.Name, durable, notAutoDelete, notExclusive, waitForAnswer, args)
			return err
		})
		if err == nil {
			return differingCheck(f, o, differing), nil
		}
		if !replied(err, amqp.PreconditionFailed) {
			return refusedCheck(f, fmt.Errorf("compare %s: %w", describe(o), unavailable(err)))
		}
		name, value, ok := readDifference(err)
		_, twice := differing[name]
		switch {
		case name == unknownToQuorum:
			delete(args, unknownToQuorum)
			args[unknownToClassic] = refused
		case !ok && strings.Contains(err.Error(), "invalid arg"): // it was deleted meanwhile
			return missingCheck(f), nil
		case !ok || twice:
			f.Severity, f.Detail, f.Remedy = doctor.Failed, "differs: "+plain(err).Error(), replace(o)
			return f, nil
		default:
			if _, isNumber := args[name].(int64); isNumber { // which RabbitMQ may write like a text
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

// readDifference returns the argument that RabbitMQ names, and what it is; nil if it is not set.
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

// replace is the hint for a queue that cannot be changed.
func replace(o broker.Object) holdfast.Hint {
	return holdfast.Hint{Kind: holdfast.HintReplaceQueue, Arg: o.Name}
}

func missingCheck(f doctor.Check) doctor.Check {
	f.Severity, f.Detail, f.Remedy = doctor.Failed, doctor.Missing, holdfast.Hint{Kind: holdfast.HintDeclareTopology}
	return f
}

// permit is the hint for what the user may not do.
var permit = holdfast.Advice("give the user the right to configure and read what begins with the prefix, with rabbitmqctl set_permissions")

// refusedCheck tells what this user may not look at. Every other error ends the errand.
func refusedCheck(f doctor.Check, err error) (doctor.Check, error) {
	if !strings.Contains(err.Error(), "ACCESS_REFUSED") {
		return f, err
	}
	f.Severity, f.Detail = doctor.Failed, err.Error()
	f.Remedy = permit
	return f, nil
}

// harms says why an argument matters, where its name does not.
var harms = map[string]string{
	"x-queue-type":           "only a quorum queue survives the loss of a node",
	"x-delivery-limit":       "a message that comes back as often as that is put aside or dropped",
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
		is, should := "not set", "not set"
		if value := differing[name]; value != nil {
			is = fmt.Sprint(value)
		}
		if value, ok := o.Args[name]; ok {
			should = fmt.Sprint(value)
		}
		part := fmt.Sprintf("%s is %s instead of %s", name, quoted(is), quoted(should))
		if harm := harms[name]; harm != "" {
			part += " (" + harm + ")"
		}
		parts = append(parts, part)
	}
	f.Severity, f.Detail, f.Remedy = doctor.Failed, strings.Join(parts, "; "), replace(o)
	return f
}

func quoted(text string) string {
	if text == "" {
		return `""`
	}
	return text
}

package rabbitmq_test

import (
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/workshop/brokertest"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
)

func compare(t *testing.T, b *rabbitmq.Broker, o broker.Object) doctor.Check {
	t.Helper()
	checks, err := b.Compare(ctx(t), []broker.Object{o})
	must(t, err)
	if len(checks) != 1 || checks[0].Name != o.Name {
		t.Fatalf("got %+v", checks)
	}
	return checks[0]
}

func TestChecker(t *testing.T) {
	t.Parallel()
	brokertest.RunChecker(t, func(t *testing.T) brokertest.Checkable {
		b, _ := rabbittest.Open(t)
		return b
	})
}

// The check reports every difference, not only the first one that RabbitMQ reports, for each queue type.
func TestEveryDifferenceIsNamed(t *testing.T) {
	t.Parallel()
	b, prefix := rabbittest.Open(t)
	wanted := broker.NewTopology(prefix, 1, "1").Queues(nil)[1] // the rescue queue, with dead letters
	for name, c := range map[string]struct {
		args map[string]any
		want []string
	}{
		"classic": {nil, []string{"x-overflow is not set instead of reject-publish",
			`x-dead-letter-exchange is not set instead of ""`, "only a quorum queue survives"}},
		"classic with a TTL": {map[string]any{"x-queue-type": "classic", "x-message-ttl": int64(60000)}, []string{"x-queue-type is classic instead of quorum", "x-message-ttl is 60000 instead of not set (it removes messages)"}},
		"quorum":             {map[string]any{"x-queue-type": "quorum"}, []string{"x-delivery-limit is not set instead of 1000"}},
		"another limit":      {map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(20)}, []string{"x-delivery-limit is 20 instead of 1000"}},
		"a length": {map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(1000), "x-max-length": int64(5), "x-overflow": "drop-head"},
			[]string{"x-max-length is 5 instead of not set", "x-overflow is drop-head instead of reject-publish"}},
		"stream": {map[string]any{"x-queue-type": "stream"}, []string{"x-queue-type is stream instead of quorum"}},
	} {
		o := broker.Object{Name: prefix + "." + strings.ReplaceAll(name, " ", "-"), Args: c.args}
		err := b.Declare(ctx(t), []broker.Object{o})
		must(t, err)
		got := compare(t, b, broker.Object{Name: o.Name, Args: wanted.Args})
		if got.Severity != doctor.Failed || got.Remedy != (holdfast.Hint{Kind: holdfast.HintReplaceQueue, Arg: o.Name}) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, text := range c.want {
			if !strings.Contains(got.Detail, text) {
				t.Errorf("%s: %q does not contain %q", name, got.Detail, text)
			}
		}
		if got := compare(t, b, o); name != "classic" && got.Severity != doctor.OK {
			t.Errorf("%s: compared with its own arguments: %+v", name, got)
		}
	}
}

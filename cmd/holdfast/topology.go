package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/surface"
)

type topologyCommands struct{ *tool }

func (t topologyCommands) command() *cli.Command {
	return noun("topology", "print, check, create and delete the AMQP queues in RabbitMQ",
		t.verb("print", "print every AMQP queue and exchange with its arguments",
			`The command reads the queues and the incarnation from the store. If the store is unavailable, it prints the
configured queues and the placeholder <incarnation>. It does not connect to RabbitMQ.

Example:
  holdfast topology print -o json`,
			plain(t.print), outputFlag()),
		t.verb("check", "compare the AMQP queues and exchanges in RabbitMQ with the required ones",
			`Changes nothing. Lists AMQP queues and exchanges that are missing or have other arguments, each with a
remedy. Also lists a warning if RabbitMQ should be upgraded. The exit code is 7 if a check failed; warnings do not
change it.

Example:
  holdfast topology check`,
			reads(t.tool, openBroker, t.check), outputFlag()),
		t.verb("apply", "create missing AMQP queues and exchanges in RabbitMQ",
			`A running janitor does the same within seconds. If an AMQP queue had to be created again, its tasks get new
tickets. The command never changes an existing AMQP queue. If one has other arguments, the command fails.

Example:
  holdfast topology apply`,
			reads(t.tool, openBroker, t.apply), outputFlag()),
		t.verb("delete", "delete every AMQP queue and exchange with this prefix, with all messages",
			`No task is lost, because the tasks are in the store. "topology apply" or a janitor creates the AMQP queues
again and publishes new tickets. A running janitor does so at once, so stop all janitors first. Messages in the
quarantine are lost. On a terminal the command asks for confirmation; elsewhere it needs --yes.

Example:
  holdfast topology delete --yes`,
			plain(t.delete), outputFlag(), yesFlag()),
	)
}

// openBroker attaches to the servers and waits until the broker answers. It returns an error for the embedded broker,
// because only its own process can reach it.
func openBroker(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) (*app.Backend, error) {
	b, err := app.Attach(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	if _, embedded := b.Embedded(); embedded {
		err = usage("the embedded broker is inside holdfast serve, which creates its queues; to use this command, set AMQP_URL for RabbitMQ")
	} else {
		err = b.Ping(ctx, brokerTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// object is an AMQP queue or exchange with JSON keys.
type object struct {
	Kind string         `json:"kind"`
	Name string         `json:"name"`
	Args map[string]any `json:"arguments"`
}

func newObject(o broker.Object) object {
	kind := "queue"
	if o.Kind == broker.Exchange {
		kind = "exchange"
	}
	args := o.Args
	if args == nil {
		args = map[string]any{}
	}
	return object{kind, o.Name, args}
}

func (o object) arguments() string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(o.Args)) {
		pairs = append(pairs, fmt.Sprintf("%s=%v", key, o.Args[key]))
	}
	return strings.Join(pairs, " ")
}

// allObjects returns every object of a topology in the order of creation.
func allObjects(topology broker.Topology, queues []string) []broker.Object {
	return append(topology.Queues(queues), topology.MarkerObject())
}

func (t topologyCommands) print(ctx context.Context, c *cli.Context) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	incarnation, queues := "<incarnation>", append([]string{cfg.Defaults.Queue}, cfg.Worker.Queues...)
	for _, settings := range cfg.Types {
		queues = append(queues, settings.Queue)
	}
	err = t.useBackend(ctx, cfg, openCheckedStore, func(b *app.Backend) error {
		stored, err := b.Store.QueueNames(ctx)
		if err != nil {
			return err
		}
		if incarnation, err = b.Store.Incarnation(ctx); err == nil && len(stored) > 0 {
			queues = stored
		}
		return err
	})
	if err != nil {
		t.sayError("warning: the queues and the incarnation are examples, because the store is unavailable", err)
	}
	slices.Sort(queues)
	var objects []object
	for _, o := range allObjects(broker.NewTopology(cfg.AMQP.Prefix, broker.HoldingQueues, incarnation), slices.Compact(queues)) {
		objects = append(objects, newObject(o))
	}
	return printList(t.tool, c, "objects", objects, "",
		column[object]{"kind", func(o object) string { return o.Kind }},
		column[object]{"name", func(o object) string { return o.Name }},
		column[object]{"arguments", object.arguments})
}

func (t topologyCommands) check(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	problems, failed, err := surface.BrokerProblems(ctx, b, hintText)
	if err != nil {
		return err
	}
	err = printList(t.tool, c, "problems", problems, "no problems found",
		column[surface.Problem]{"name", func(p surface.Problem) string { return p.Name }},
		column[surface.Problem]{"result", func(p surface.Problem) string { return string(p.Result) }},
		column[surface.Problem]{"problem", func(p surface.Problem) string { return p.Problem }},
		column[surface.Problem]{"remedy", func(p surface.Problem) string { return p.Remedy }})
	if err == nil && failed > 0 {
		err = &failure{err: fmt.Errorf("the topology has %s", plural(failed, "error")), code: exitCheck}
	}
	return err
}

func (t topologyCommands) apply(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	missing, err := b.Rebuild(ctx)
	if err != nil {
		return err
	}
	return stored(t.names(c, missing, "nothing was missing", "created"), "created %s", plural(len(missing), "AMQP object"))
}

// nameRow is a row with a name.
type nameRow struct {
	Name string `json:"name"`
}

func (t topologyCommands) names(c *cli.Context, names []string, none, head string) error {
	rows := make([]nameRow, len(names))
	for i, name := range names {
		rows[i] = nameRow{name}
	}
	return printList(t.tool, c, "objects", rows, none, column[nameRow]{head, func(n nameRow) string { return n.Name }})
}

func (t topologyCommands) delete(ctx context.Context, c *cli.Context) error {
	if err := t.confirm(c, "delete every AMQP queue with this prefix, with all messages"); err != nil {
		return err
	}
	return t.withBackend(ctx, c, openBroker, func(b *app.Backend) error {
		queues, err := b.Store.QueueNames(ctx)
		if err != nil {
			return err
		}
		objects := allObjects(b.Topology, queues)
		missing, err := b.Topology.Verify(ctx, b.Broker, queues)
		if err != nil {
			return err
		}
		if err := b.Topology.Delete(ctx, b.Broker, queues); err != nil {
			return err
		}
		var deleted []string
		for _, o := range objects {
			if !slices.Contains(missing, o.Name) {
				deleted = append(deleted, o.Name)
			}
		}
		return stored(t.names(c, deleted, "there was nothing to delete", "deleted"), "deleted %s", plural(len(deleted), "AMQP object"))
	})
}

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/doctor"
)

// topologyCommands are the commands of the noun topology.
type topologyCommands struct{ *tool }

func (t topologyCommands) command() *cli.Command {
	return &cli.Command{
		Name:  "topology",
		Usage: "print, check, make and delete the queues in RabbitMQ",
		Subcommands: []*cli.Command{{
			Name:  "print",
			Usage: "print every queue and exchange with its arguments",
			Description: `The lanes and the incarnation come from the store. Without one, the default lane and the placeholder
<incarnation> stand for them. RabbitMQ is not asked.

Example:
  holdfast topology print -o json`,
			Flags:  []cli.Flag{outputFlag()},
			Action: t.do(t.print),
		}, {
			Name:  "check",
			Usage: "compare what is in RabbitMQ with what should be",
			Description: `Changes nothing. The list says what is missing or has other arguments, and what to do; it also warns
of a version that should be replaced. The exit code is 7 if something failed; warnings are 0.

Example:
  holdfast topology check`,
			Flags:  []cli.Flag{outputFlag()},
			Action: t.do(t.check),
		}, {
			Name:  "apply",
			Usage: "make what is missing in RabbitMQ",
			Description: `A running janitor does the same within seconds. Tasks whose tickets were in a queue that had to be
made anew get new ones. Existing queues are never changed; one with other arguments is an error.

Example:
  holdfast topology apply`,
			Flags:  []cli.Flag{outputFlag()},
			Action: t.do(t.apply),
		}, {
			Name:  "delete",
			Usage: "delete every queue and exchange of this prefix and store, with all messages",
			Description: `No task is lost: they are in the store, and "topology apply" or a janitor makes the queues anew and gives
them new tickets. A running janitor does so at once, so stop it first if the queues shall stay away.
What is in the quarantine is lost. Asks first on a terminal; anywhere else it needs --yes.

Example:
  holdfast topology delete --yes`,
			Flags:  []cli.Flag{outputFlag(), yesFlag()},
			Action: t.do(t.delete),
		}},
	}
}

// withBroker is withServers, and waits until the broker answers. It is for what the broker itself is
// asked about, and the embedded one can be asked by nobody outside its process.
func (t topologyCommands) withBroker(ctx context.Context, c *cli.Context, use func(*app.Backend) error) error {
	return t.withServers(ctx, c, func(b *app.Backend) error {
		if _, embedded := b.Embedded(); embedded {
			return usageOf(commandName(c), "the embedded broker lives inside holdfast serve, which makes and checks its queues; this is for RabbitMQ, when AMQP_URL is set")
		}
		if err := b.Ping(ctx, brokerPatience); err != nil {
			return err
		}
		return use(b)
	})
}

// object is a queue or exchange as it is printed.
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

// all lists every object of a topology in the order they are made.
func all(topology broker.Topology, lanes []string) []broker.Object {
	return append(topology.Queues(lanes), topology.MarkerObject())
}

func (t topologyCommands) print(ctx context.Context, c *cli.Context) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	incarnation, lanes := "<incarnation>", append([]string{cfg.Defaults.Lane}, cfg.Worker.Lanes...)
	for _, settings := range cfg.Types {
		lanes = append(lanes, settings.Lane)
	}
	err = t.opened(ctx, cfg, openCheckedStore, func(b *app.Backend) error {
		stored, err := b.Store.LaneNames(ctx)
		if err != nil {
			return err
		}
		if incarnation, err = b.Store.Incarnation(ctx); err == nil && len(stored) > 0 {
			lanes = stored
		}
		return err
	})
	if err != nil {
		t.sayError("warning: without the store, lanes and incarnation are only examples", err)
	}
	slices.Sort(lanes)
	var objects []object
	for _, o := range all(broker.NewTopology(cfg.AMQP.Prefix, cfg.AMQP.Shards, incarnation), slices.Compact(lanes)) {
		objects = append(objects, newObject(o))
	}
	return list(t.tool, c, objects, "",
		column[object]{"kind", func(o object) string { return o.Kind }},
		column[object]{"name", func(o object) string { return o.Name }},
		column[object]{"arguments", object.arguments})
}

// problem is a check of the broker that is not OK.
type problem struct {
	Name    string          `json:"name"`
	Result  doctor.Severity `json:"result"`
	Problem string          `json:"problem"`
	Remedy  string          `json:"remedy"`
}

func (t topologyCommands) check(ctx context.Context, c *cli.Context) error {
	return t.withBroker(ctx, c, func(b *app.Backend) error {
		problems, failed, err := inspect(ctx, b)
		if err != nil {
			return err
		}
		err = list(t.tool, c, problems, "everything is as it should be",
			column[problem]{"name", func(p problem) string { return p.Name }},
			column[problem]{"result", func(p problem) string { return string(p.Result) }},
			column[problem]{"problem", func(p problem) string { return p.Problem }},
			column[problem]{"remedy", func(p problem) string { return p.Remedy }})
		if err == nil && failed > 0 {
			err = &failure{err: fmt.Errorf("the topology differs in %s", several(failed, "place")), code: exitCheck}
		}
		return err
	})
}

// inspect returns what a person should look at, in the server and in the queues, and how many of it failed.
func inspect(ctx context.Context, b *app.Backend) (problems []problem, failed int, err error) {
	checks, err := b.CheckBroker(ctx)
	if err != nil {
		return nil, 0, err
	}
	problems = []problem{}
	for _, c := range checks {
		switch c.Severity {
		case doctor.Failed:
			failed++
		case doctor.OK, doctor.Skipped:
			continue
		}
		problems = append(problems, problem{c.Name, c.Severity, c.Detail, wording(c.Remedy)})
	}
	return problems, failed, nil
}

func (t topologyCommands) apply(ctx context.Context, c *cli.Context) error {
	return t.withBroker(ctx, c, func(b *app.Backend) error {
		missing, err := b.Rebuild(ctx)
		if err != nil {
			return err
		}
		return t.names(c, missing, "nothing was missing", "made")
	})
}

// named is a line of a list of names.
type named struct {
	Name string `json:"name"`
}

func (t topologyCommands) names(c *cli.Context, names []string, none, head string) error {
	rows := make([]named, len(names))
	for i, name := range names {
		rows[i] = named{name}
	}
	return list(t.tool, c, rows, none, column[named]{head, func(n named) string { return n.Name }})
}

func (t topologyCommands) delete(ctx context.Context, c *cli.Context) error {
	if err := t.confirm(c, "delete every queue of this prefix with all messages in it"); err != nil {
		return err
	}
	return t.withBroker(ctx, c, func(b *app.Backend) error {
		lanes, err := b.Store.LaneNames(ctx)
		if err != nil {
			return err
		}
		objects := all(b.Topology, lanes)
		missing, err := b.Topology.Verify(ctx, b.Broker, lanes)
		if err != nil {
			return err
		}
		if err := b.Topology.Delete(ctx, b.Broker, lanes); err != nil {
			return err
		}
		var deleted []string
		for _, o := range objects {
			if !slices.Contains(missing, o.Name) {
				deleted = append(deleted, o.Name)
			}
		}
		return t.names(c, deleted, "there was nothing to delete", "deleted")
	})
}

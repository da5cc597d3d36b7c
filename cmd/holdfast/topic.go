package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

const (
	// maxListedTopics is the highest --limit of "topic list". The store counts the tasks of each part.
	maxListedTopics = 1000
	// maxListedWeights is the highest --limit of "topic weights".
	maxListedWeights = 10_000
)

// topicCommands implements the command topic and its subcommands.
type topicCommands struct{ *tool }

func (t topicCommands) command() *cli.Command {
	return noun("topic topics", "show the topics that share executors, and change their weights",
		t.listCommand(),
		t.getCommand(),
		t.setCommand(),
		t.weightsCommand(),
	)
}

func (t topicCommands) listCommand() *cli.Command {
	return t.verb("list", "list the topics in which tasks are open",
		`The tasks of a topic were enqueued with --topic. A due task with a topic waits for a slot. Janitors give the slots
of a queue fairly to its topics, by their weights. A line of the list is for the tasks of a topic that have the same
queue and the same priority.

WAITING is the number of tasks that wait for a slot. SLOTS is the number of tasks that have one: they have a ticket, or
run. LATER is the number of tasks that are not due, or that something else blocks. Each is counted up to 100,000. All
tasks of the topic with ids up to SCANNED have started at least once or have ended, and those up to DONE have ended.

--sort sorts the lines of one page. For the next page, give --after as the message below the list says. -o json has
that cursor as "next", which is null on the last page.

Example:
  holdfast topic list --queue mail`,
		t.list, outputFlag(), []cli.Flag{
			&cli.StringFlag{Name: "queue", Usage: "only topics with open tasks in the queue `NAME`"},
			&cli.IntFlag{Name: "limit", Value: 50, Usage: "at most `N` lines; default 50"},
			&cli.StringFlag{Name: "after", Usage: "only lines after the `CURSOR` of the page before"},
		}, sortFlag(), watchFlag())
}

func (t topicCommands) list(ctx context.Context, c *cli.Context) error {
	limit, err := t.limit(c, maxListedTopics)
	if err != nil {
		return err
	}
	for _, name := range []string{"queue", "after"} {
		if c.IsSet(name) && c.String(name) == "" { // an empty variable in a script
			return usageOf(commandName(c), "--%s is empty", name)
		}
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		page, err := surface.Topics(ctx, b, c.String("queue"), c.String("after"), limit)
		if err != nil {
			return err
		}
		columns := append([]column[store.TopicUse]{
			{"topic", func(p store.TopicUse) string { return p.Topic }},
		}, t.partColumns()...)
		if chosen, _ := format(c); chosen == asJSON {
			return jsonPage(t.tool, c, "topics", page.Topics, page.Next, columns)
		}
		if err := list(t.tool, c, "topics", page.Topics, "no task with a topic is open", columns...); err != nil {
			return err
		}
		if page.Next != nil {
			t.saySorted(c)
			t.say("there are more topics; for the next page, add --after %s", quoted(*page.Next))
		}
		return nil
	})
}

// limit returns the value of --limit.
func (t topicCommands) limit(c *cli.Context, most int) (int, error) {
	limit := c.Int("limit")
	if limit < 1 || limit > most {
		return 0, usageOf(commandName(c), "--limit %d must be at least 1 and at most %d", limit, most)
	}
	return limit, nil
}

// partColumns returns the columns of a part of a topic, without the topic.
func (t topicCommands) partColumns() []column[store.TopicUse] {
	return []column[store.TopicUse]{
		{"queue", func(p store.TopicUse) string { return p.Queue }},
		{"priority", func(p store.TopicUse) string { return p.Priority.String() }},
		{"weight", func(p store.TopicUse) string { return fmt.Sprint(p.Weight) }},
		{"waiting", func(p store.TopicUse) string { return fmt.Sprint(p.Waiting) }},
		{"slots", func(p store.TopicUse) string { return fmt.Sprint(p.Slots) }},
		{"later", func(p store.TopicUse) string { return fmt.Sprint(p.Later) }},
		{"scanned", func(p store.TopicUse) string { return p.Scanned.String() }},
		{"done", func(p store.TopicUse) string { return p.Done.String() }},
	}
}

func (t topicCommands) getCommand() *cli.Command {
	return t.verb("get TOPIC", "show how far the tasks of a topic have come",
		`All tasks of the topic with ids up to SCANNED have started at least once or have ended, and those up to DONE have
ended: they are done, dead, cancelled, archived or deleted. STORED is the highest id that both can have now. The table
has the parts of the topic in which tasks are open; "topic list --help" describes its columns.

With --through, the exit code is 0 if all tasks of the topic up to that id have ended, and 7 if not. A topic without
tasks counts as one whose tasks have ended. The ids of new tasks count only when no open transaction can store an
earlier one. So the exit code may be 7 for some time after the last task has ended.

Example:
  holdfast topic get site-7 --through 4711`,
		t.get, outputFlag(), []cli.Flag{&cli.StringFlag{Name: "through", Usage: "check that all tasks of the topic with ids up to `ID` have ended"}}, watchFlag())
}

func (t topicCommands) get(ctx context.Context, c *cli.Context) error {
	topic := c.Args().First()
	if err := holdfast.CheckTopic(topic); err != nil {
		return err
	}
	var through holdfast.TaskID
	if c.IsSet("through") {
		var err error
		if through, err = holdfast.ParseTaskID(c.String("through")); err != nil {
			return fmt.Errorf("--through: %w", err)
		}
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		progress, err := b.Store.TopicProgress(ctx, topic)
		if err != nil {
			return err
		}
		if err := one(t.tool, c, progress, func() error { return t.describe(c, progress) }); err != nil {
			return err
		}
		if progress.Done < through {
			return &failure{err: fmt.Errorf("not all tasks of the topic %s up to %s have ended; done is %s", topic, through, progress.Done), code: exitCheck}
		}
		return nil
	})
}

// describe prints the progress of a topic as lines with a label and a value, and its parts as a table.
func (t topicCommands) describe(c *cli.Context, p store.TopicProgress) error {
	for _, line := range []struct{ name, text string }{
		{"topic", p.Topic},
		{"weight", fmt.Sprint(p.Weight)},
		{"scanned", p.Scanned.String()},
		{"done", p.Done.String()},
		{"stored", p.Stored.String()},
	} {
		if err := t.field(line.name, line.text); err != nil {
			return err
		}
	}
	if len(p.Parts) == 0 {
		return nil
	}
	fmt.Fprintln(t.stdout)
	return list(t.tool, c, "parts", p.Parts, "", t.partColumns()...)
}

func (t topicCommands) setCommand() *cli.Command {
	return t.verb("set TOPIC", "set the weight of a topic",
		fmt.Sprintf(`While tasks of several topics wait, a topic with the weight 3 gets a slot three times as often as a topic with the
weight 1, which is that of all other topics. But no topic has more than half of the slots then, so between two topics
a weight may have no effect. The weight is from 1 to %d. It concerns all queues, and remains when the topic has no
tasks. The audit log has each change.

Example:
  holdfast topic set site-7 --weight 3 --reason "a large customer"`, store.MaxTopicWeight),
		t.set, outputFlag(), []cli.Flag{&cli.IntFlag{Name: "weight", Usage: "the new weight `N`; topics without one have the weight 1"}}, actorFlags())
}

func (t topicCommands) set(ctx context.Context, c *cli.Context) error {
	w := store.TopicWeight{Topic: c.Args().First(), Weight: c.Int("weight")}
	if err := holdfast.CheckTopic(w.Topic); err != nil {
		return err
	}
	switch {
	case !c.IsSet("weight"):
		return usageOf(commandName(c), "give the new weight with --weight")
	case w.Weight < 1 || w.Weight > store.MaxTopicWeight:
		return usageOf(commandName(c), "--weight %d must be at least 1 and at most %d", w.Weight, store.MaxTopicWeight)
	}
	by, err := t.actor(c)
	if err != nil {
		return err
	}
	return t.withNewStore(ctx, c, func(b *app.Backend) error {
		set, err := surface.SetTopicWeight(ctx, b, by, w)
		if err != nil {
			return err
		}
		t.say("topic %s has the weight %d; before, it had the weight %d", set.Topic, set.Weight, set.Before)
		return one(t.tool, c, set, func() error {
			return list(t.tool, c, "weights", []surface.WeightChange{set}, "",
				column[surface.WeightChange]{"topic", func(s surface.WeightChange) string { return s.Topic }},
				column[surface.WeightChange]{"weight", func(s surface.WeightChange) string { return fmt.Sprint(s.Weight) }},
				column[surface.WeightChange]{"before", func(s surface.WeightChange) string { return fmt.Sprint(s.Before) }})
		})
	})
}

func (t topicCommands) weightsCommand() *cli.Command {
	return t.verb("weights", "list the topics whose weight is not 1",
		`Example:
  holdfast topic weights --sort -weight`,
		t.weights, outputFlag(), []cli.Flag{&cli.IntFlag{Name: "limit", Value: 50, Usage: "at most `N` topics; default 50"}}, sortFlag())
}

func (t topicCommands) weights(ctx context.Context, c *cli.Context) error {
	limit, err := t.limit(c, maxListedWeights)
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		weights, err := b.Store.TopicWeights(ctx, toRead(c, limit, maxListedWeights)+1)
		if err != nil {
			return err
		}
		columns := []column[store.TopicWeight]{
			{"topic", func(w store.TopicWeight) string { return w.Topic }},
			{"weight", func(w store.TopicWeight) string { return fmt.Sprint(w.Weight) }},
		}
		shown, err := top(c, weights, limit, columns)
		if err != nil {
			return err
		}
		if err := list(t.tool, c, "weights", shown, "all topics have the weight 1", columns...); err != nil {
			return err
		}
		if len(weights) > limit {
			t.say("there are more weights; to see them, give a higher --limit")
		}
		return nil
	})
}

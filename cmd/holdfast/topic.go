package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// maxListedWeights is the maximum number of weights that "topic weights --sort" reads.
const maxListedWeights = 10_000

type topicCommands struct{ *tool }

func (t topicCommands) command() *cli.Command {
	return noun("topic topics", "show the topics that share executors, and change their weights",
		t.verb("list", "list the topics in which tasks are open",
			`The tasks of a topic were enqueued with --topic. A due task with a topic waits for a slot. Janitors give the
slots of a queue fairly to its topics, by their weights. A line of the list is for the tasks of a topic that have the
same queue and the same priority.

WAITING is the number of tasks that wait for a slot. SLOTS is the number of tasks that have one: they have a ticket, or
run. LATER is the number of tasks that are not due, or that something else blocks. Each is counted up to 100,000. All
tasks of the topic with ids up to SCANNED have started at least once or have ended, and those up to DONE have ended.

--sort sorts the lines of one page. For the next page, give --after as the message below the list says. -o json has that
cursor as "next", which is null on the last page.

Example:
  holdfast topic list --queue mail`,
			reads(t.tool, openCheckedStore, t.list), outputFlag(), sortFlag(), watchFlag()),
		t.verb("get TOPIC", "show how far the tasks of a topic have come",
			`All tasks of the topic with ids up to SCANNED have started at least once or have ended, and those up to DONE
have ended: they are done, dead, cancelled, archived or deleted. STORED is the highest id that both can have now. The
table has the parts of the topic in which tasks are open; "topic list --help" describes its columns.

With --through, the exit code is 0 if all tasks of the topic up to that id have ended, and 7 if not. It is 0 for a topic
without tasks. DONE reaches a new task only when no open transaction can store an earlier one. So the exit code may be 7
for some time after the last task has ended.

Example:
  holdfast topic get site-7 --through 4711`,
			reads(t.tool, openCheckedStore, t.get), outputFlag(), watchFlag()),
		t.verb("set TOPIC", "set the weight of a topic",
			fmt.Sprintf(`While tasks of several topics wait, a topic with the weight 3 gets a slot three times as often as a
topic with the weight 1, which is that of all other topics. But no topic has more than half of the slots then, so
between two topics a weight may have no effect. The weight is from 1 to %d. It concerns all queues, and remains when the
topic has no tasks. The audit log has each change.

Example:
  holdfast topic set site-7 --weight 3 --reason "a large customer"`, store.MaxTopicWeight),
			changes(t.tool, openNewStore, t.set), outputFlag()),
		t.verb("weights", "list the topics whose weight is not 1",
			`Example:
  holdfast topic weights --sort -weight`,
			reads(t.tool, openCheckedStore, t.weights), outputFlag(), sortFlag()),
	)
}

func (t topicCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, r surface.TopicQuery) error {
	page, err := surface.Topics(ctx, b, r)
	if err != nil {
		return err
	}
	columns := append([]column[store.TopicUse]{
		{"topic", func(p store.TopicUse) string { return p.Topic }},
	}, t.partColumns()...)
	return printPage(t.tool, c, "topics", page.Topics, (*topicCursor)(page.Next), "no task with a topic is open",
		"there are more topics; for the next page, add --after %s", columns...)
}

// topicCursor is the cursor of a page of topics, for a shell.
type topicCursor string

// String returns the cursor in quotes.
func (c topicCursor) String() string { return quoted(string(c)) }

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

// topicQuery is the request of "topic get".
type topicQuery struct {
	Topic   string          `arg:"0"`
	Through holdfast.TaskID `query:"through" flag:"ID" doc:"Check that all tasks of the topic with ids up to this id have ended."`
}

// Check returns an error if the request is invalid.
func (r topicQuery) Check() error { return holdfast.CheckTopic(r.Topic) }

func (t topicCommands) get(ctx context.Context, c *cli.Context, b *app.Backend, r topicQuery) error {
	progress, err := b.Store.TopicProgress(ctx, r.Topic)
	if err != nil {
		return err
	}
	if err := printItem(t.tool, c, progress, func() error { return t.describe(c, progress) }); err != nil {
		return err
	}
	if progress.Done < r.Through {
		return &failure{err: fmt.Errorf("not all tasks of the topic %s up to %s have ended; done is %s", r.Topic, r.Through, progress.Done), code: exitCheck}
	}
	return nil
}

// describe prints the progress of a topic as lines with a label and a value, and its parts as a table.
func (t topicCommands) describe(c *cli.Context, p store.TopicProgress) error {
	err := t.fields([]field{
		{"topic", p.Topic},
		{"weight", fmt.Sprint(p.Weight)},
		{"scanned", p.Scanned.String()},
		{"done", p.Done.String()},
		{"stored", p.Stored.String()},
	})
	if err != nil || len(p.Parts) == 0 {
		return err
	}
	fmt.Fprintln(t.stdout)
	return printList(t.tool, c, "parts", p.Parts, "", t.partColumns()...)
}

func (t topicCommands) set(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r surface.NewWeight) error {
	set, err := surface.SetTopicWeight(ctx, b, by, r)
	if err != nil {
		return err
	}
	t.say("topic %s has the weight %d; before, it had the weight %d", set.Topic, set.Weight, set.Before)
	return printRow(t.tool, c, set,
		column[surface.WeightChange]{"topic", func(s surface.WeightChange) string { return s.Topic }},
		column[surface.WeightChange]{"weight", func(s surface.WeightChange) string { return fmt.Sprint(s.Weight) }},
		column[surface.WeightChange]{"before", func(s surface.WeightChange) string { return fmt.Sprint(s.Before) }})
}

func (t topicCommands) weights(ctx context.Context, c *cli.Context, b *app.Backend, r surface.WeightQuery) error {
	read := func(n int) ([]store.TopicWeight, error) { return b.Store.TopicWeights(ctx, n) }
	return printFirst(t.tool, c, "weights", r.Limit, maxListedWeights, "all topics have the weight 1", read,
		column[store.TopicWeight]{"topic", func(w store.TopicWeight) string { return w.Topic }},
		column[store.TopicWeight]{"weight", func(w store.TopicWeight) string { return fmt.Sprint(w.Weight) }},
	)
}

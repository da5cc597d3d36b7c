package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type gateCommands struct{ *tool }

func (t gateCommands) command() *cli.Command {
	return noun("gate gates", "list what keeps ready tasks from starting",
		t.verb("list", "list the closed gates, then the limits, each oldest first",
			`A closed gate keeps ready tasks from starting. A person closes one with "queue pause", "type pause", "key
pause" or "target pause". A worker closes a breaker when a target fails. A limit blocks a task while no permit is free
for it. BLOCKED is the number of tasks that wait at the gate or the limit, counted up to 100,000. The tasks of a paused
queue wait in the broker and are not in it; see "queue list".
Ordered tasks that wait for their turn are in "key list", and tasks that wait for a slot of their topic are in "topic
list".

STATE of a limit is what it allows, and "IN USE" is the number of its permits: the tasks that run or may start now, over
all keys or targets. Attempts that ran before the limit was set are not in it.

STATE of a breaker: no task starts while it is open; while it is half-open, up to three probes start; while it is
ramping, more and more do. UNTIL is the end of a pause, or the time of an open breaker's next probe. REASON is that of
the person, or the last fault of the target.

Example:
  holdfast gate list --kind breaker --watch`,
			reads(t.tool, openCheckedStore, t.list), outputFlag(), sortFlag(), watchFlag()),
	)
}

func (t gateCommands) typeCommand() *cli.Command {
	return noun("type types", "pause and resume the tasks of a type", t.pauseCommands(pausable{"type", "NAME", "http", ofType})...)
}

func (t gateCommands) keyCommand() *cli.Command {
	return noun("key keys", "pause and resume the tasks of a key, such as a tenant, and list the keys of ordered tasks", append([]*cli.Command{
		t.listKeysCommand(),
	}, t.pauseCommands(pausable{"key", "KEY", "tenant-7", ofKey})...)...)
}

func (t gateCommands) targetCommand() *cli.Command {
	return noun("target targets", "show, pause and resume the hosts that tasks of type http call, and reset their breakers", append([]*cli.Command{
		t.getTargetCommand(),
	}, t.pauseCommands(pausable{"target", "TARGET", "https://api.example.com", ofTarget})...)...)
}

// pausable is a noun whose tasks people can pause.
type pausable struct {
	noun, argument, example string
	subject                 func(argument string) surface.GateSubject
}

func ofQueue(name string) surface.GateSubject { return surface.GateSubject{Queue: name} }
func ofType(name string) surface.GateSubject  { return surface.GateSubject{Type: name} }
func ofKey(key string) surface.GateSubject    { return surface.GateSubject{Key: key} }
func ofTarget(url string) surface.GateSubject { return surface.GateSubject{Target: url} }

// pauseCommands returns the commands pause and resume of a noun.
func (t gateCommands) pauseCommands(p pausable) []*cli.Command {
	about := map[string]string{
		"queue": `The tickets of the queue stay in the broker.`,
		"type":  `Workers take their tickets, and their tasks wait in the store. Other tasks of the same queues start.`,
		"key": `The tasks of the key were enqueued with --key. Workers take their tickets, and the tasks wait in the
store. Other tasks of the same queues start.`,
		"target": `TARGET is a URL, or a host with or without a port. The pause is for the tasks of type http whose URL has
the same scheme, host and port; without a scheme, https. Other tasks of the same queues start.`,
	}[p.noun]
	reset, paused := "", "paused"
	if p.noun == "target" {
		reset, paused = " The command also resets the breaker of\nthe target, so that its tasks start without probes.", "paused\nand has no breaker that has tripped"
	}
	return []*cli.Command{
		t.verb("pause "+p.argument, fmt.Sprintf("keep the ready tasks of a %s from starting", p.noun),
			fmt.Sprintf(`When the command returns, no worker claims a task of the %s, until the pause ends. Handlers
that run continue. %s

A second pause changes the first one: the end stays without --for, and the reason stays without --reason. The answer and
the audit log have the values before and after.

Example:
  holdfast %[3]s pause %[4]s --for 1h --reason "deploy"
  holdfast %[3]s pause %[4]s --for none`, p.noun, about, p.noun, p.example),
			t.pause(p), outputFlag()),
		t.verb("resume "+p.argument, fmt.Sprintf("end the pause of a %s", p.noun),
			fmt.Sprintf(`A janitor makes the waiting tasks due in small steps.%s The exit code is 3 if the %s is not %s.
-o json prints the pause or the breaker that was removed.

Example:
  holdfast %s resume %s`, reset, p.noun, paused, p.noun, p.example),
			t.resume(p), outputFlag()),
	}
}

func (t gateCommands) pause(p pausable) action {
	return changes(t.tool, openNewStore, func(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r surface.NewGate) error {
		r.Kind, r.GateSubject = string(store.GatePause), p.subject(c.Args().First())
		paused, err := surface.CloseGate(ctx, b, by, r, nil)
		if err != nil {
			return err
		}
		t.warn(paused.Warnings)
		t.say("%s is paused %s; handlers that run continue", paused.Subject, t.pauseEnd(paused.Gate))
		if before := paused.Before; before != nil {
			t.say("before, it was paused %s%s, by %s", t.pauseEnd(*before), inBrackets(before.Reason), clipped(before.Name, 40))
		}
		t.hint(hintText(paused.Subject.ResumeHint()))
		return printItem(t.tool, c, paused, func() error {
			return printTable(t.tool, []surface.GateOrLimit{{ListedGate: surface.ListedGate{Gate: paused.Gate}}}, "", t.columns())
		})
	})
}

// pauseEnd returns when a pause ends, for a sentence.
func (t gateCommands) pauseEnd(g store.Gate) string {
	if g.Until.IsZero() {
		return "until somebody resumes it"
	}
	return "until " + t.absoluteAndRelative(g.Until)
}

// inBrackets returns a space and the reason in brackets, or "" if there is no reason.
func inBrackets(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + clipped(reason, 60) + ")"
}

func (t gateCommands) resume(p pausable) action {
	return changes(t.tool, openCheckedStore, func(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, _ struct{}) error {
		gate, err := surface.OpenGate(ctx, b, by, p.subject(c.Args().First()))
		if err != nil {
			return notFound(err, "see: holdfast gate list")
		}
		t.say("%s is resumed; a janitor makes the tasks due that waited at the gate", gate.Subject)
		return printItem(t.tool, c, gate, func() error { return nil })
	})
}

// gateQuery is the request of "gate list".
type gateQuery struct {
	Kind string `query:"kind" flag:"KIND" enum:"pause,breaker,limit" doc:"Only those of this kind."`
}

func (t gateCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, r gateQuery) error {
	gates, err := surface.GatesAndLimits(ctx, b)
	if err != nil {
		return err
	}
	none := "no gate is closed, and no limit is set"
	if r.Kind != "" {
		none = "there is no " + r.Kind
		gates = slices.DeleteFunc(gates, func(g surface.GateOrLimit) bool { return string(g.Kind) != r.Kind })
	}
	return printList(t.tool, c, "gates", gates, none, t.columns()...)
}

// gateState returns the state of a breaker, or what a limit allows.
func gateState(g surface.GateOrLimit) string {
	switch {
	case g.Breaker != nil:
		return string(g.Breaker.State)
	case g.Kind == store.GateLimit:
		return allowance(store.Limit{Rate: g.Rate, Concurrency: g.Concurrency})
	}
	return "-"
}

// gateSubject returns the tasks that the gate concerns.
func gateSubject(g surface.GateOrLimit) string {
	if g.Kind == store.GateLimit {
		return strings.TrimPrefix(store.Scope{Subject: g.Subject, Per: g.Per}.String(), "limit ")
	}
	return g.Subject.String()
}

func (t gateCommands) columns() []column[surface.GateOrLimit] {
	return []column[surface.GateOrLimit]{
		{"gate", func(g surface.GateOrLimit) string { return g.ID.String() }},
		{"kind", func(g surface.GateOrLimit) string { return string(g.Kind) }},
		{"subject", gateSubject},
		{"state", gateState},
		{"by", func(g surface.GateOrLimit) string { return g.Name }},
		{"since", func(g surface.GateOrLimit) string { return t.stamp(g.ClosedAt) }},
		{"until", func(g surface.GateOrLimit) string { return t.stamp(untilOf(g)) }},
		{"in use", func(g surface.GateOrLimit) string { return orNothing(g.InUse) }},
		{"blocked", func(g surface.GateOrLimit) string { return fmt.Sprint(g.Blocked) }},
		{"reason", func(g surface.GateOrLimit) string { return g.Reason }},
	}
}

// orNothing formats a number, and returns "" if there is none.
func orNothing(n *int) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// untilOf returns the time at which a gate opens or changes by itself, or the zero time if there is none.
func untilOf(g surface.GateOrLimit) time.Time {
	if g.Breaker != nil && g.Breaker.State == store.BreakerOpen {
		return g.Breaker.ProbeAt
	}
	return g.Until
}

// maxListedKeys is the maximum number of keys that "key list --sort" reads. The store counts the waiting tasks of each.
const maxListedKeys = 10_000

func (t gateCommands) listKeysCommand() *cli.Command {
	return t.verb("list", "list the keys in which ordered tasks wait or are blocked",
		`The ordered tasks of a key were enqueued with --ordered, and start one after the other. ACTIVE is the task
whose turn it is, and STATE its state. SINCE is when it was created, or died if it is dead. WAITING is the number of
tasks that wait for their turn, counted up to 100,000. If DOOMED is yes, all tasks behind the dead task die too, without
an attempt; see the setting after_death.

The keys with a dead task come first. Such a key waits for a person: "task retry" runs the task again, "task cancel" and
"dead archive" give it up, and then the next task of the key starts.

Example:
  holdfast key list --dead`,
		reads(t.tool, openCheckedStore, t.listKeys), outputFlag(), sortFlag(), watchFlag())
}

func (t gateCommands) listKeys(ctx context.Context, c *cli.Context, b *app.Backend, r surface.KeyQuery) error {
	none := "no ordered task waits for its turn"
	if r.Dead {
		none = "no key has a dead task whose turn it is"
	}
	read := func(n int) ([]store.OrderedKey, error) { return b.Store.OrderedKeys(ctx, r.Dead, n) }
	return printFirst(t.tool, c, "keys", r.Limit, maxListedKeys, none, read, t.keyColumns()...)
}

func (t gateCommands) keyColumns() []column[store.OrderedKey] {
	return []column[store.OrderedKey]{
		{"key", func(k store.OrderedKey) string { return k.Key }},
		{"active", func(k store.OrderedKey) string { return unlessZero(k.Active) }},
		{"state", func(k store.OrderedKey) string { return string(k.State) }},
		{"since", func(k store.OrderedKey) string { return t.stamp(k.Since) }},
		{"waiting", func(k store.OrderedKey) string { return fmt.Sprint(k.Waiting) }},
		{"doomed", func(k store.OrderedKey) string { return yes(k.Doomed) }},
	}
}

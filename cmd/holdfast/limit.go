package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type limitCommands struct{ *tool }

func (t limitCommands) command() *cli.Command {
	return noun("limit limits", "limit how many tasks start in a time, and how many run at the same time",
		t.verb("set", "set a limit, or change it while workers run",
			`The limit is for the tasks that match all of --queue, --type, --key and --target, in all processes
together. With --per key or --per target, each key or target has a limit of its own. Without any other of these flags,
the limit is for all tasks with a key or a target. When the command returns, no worker claims such a task without a
permit of the limit. Attempts that run continue, and need no permit. The other tasks wait in the store, in the order in
which workers took their tickets; other tasks of the same queues start. If several limits concern a task, it starts when
it gets permits of all of them. "gate list --kind limit" shows the limits and their use.

If there is a limit for the same tasks, the command changes it: the rate, the concurrency and the reason that no flag
gives stay. The word none removes one of them. A limit without a rate and a concurrency is an error; remove it with
"limit unset". The answer and the audit log have the values before and after.

Example:
  holdfast limit set --type http --per key --rate 100/s --reason "fair shares"
  holdfast limit set --target https://api.example.com --concurrency 10
  holdfast limit set --target https://api.example.com --concurrency none --rate 5/s`,
			changes(t.tool, openNewStore, t.set), outputFlag()),
		t.verb("unset", "remove a limit",
			`The flags name the limit as they did when it was set. A janitor makes its waiting tasks due in small steps.
The exit code is 3 if no limit matches the flags. -o json prints the limit that was removed.

Example:
  holdfast limit unset --type http --per key`,
			changes(t.tool, openCheckedStore, t.unset), outputFlag()),
	)
}

func (t limitCommands) set(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r surface.NewLimit) error {
	set, err := surface.SetLimit(ctx, b, by, r, nil)
	if err != nil {
		return err
	}
	t.warn(set.Warnings)
	t.say("%s is set to %s; attempts that run continue", set.Scope, allowance(set.Limit))
	if before := set.Before; before != nil {
		t.say("before, it was %s%s, set by %s", allowance(*before), inBrackets(before.Reason), clipped(before.Name, 40))
	}
	t.hint("to remove it: holdfast limit unset " + scopeWords(set.Scope))
	return printItem(t.tool, c, set, func() error {
		return printTable(t.tool, []surface.GateOrLimit{surface.OfLimit(set.Limit)}, "", gateCommands(t).columns())
	})
}

// allowance returns the rate and the concurrency of a limit, for a sentence.
func allowance(l store.Limit) string {
	var parts []string
	if l.Rate != (store.Rate{}) {
		parts = append(parts, l.Rate.String())
	}
	if l.Concurrency > 0 {
		parts = append(parts, fmt.Sprintf("%d at a time", l.Concurrency))
	}
	return strings.Join(parts, " and ")
}

func (t limitCommands) unset(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r surface.LimitScope) error {
	limit, err := surface.UnsetLimit(ctx, b, by, r)
	if err != nil {
		return notFound(err, "see: holdfast gate list --kind limit")
	}
	t.say("%s is removed; a janitor makes the tasks due that waited for it", limit.Scope)
	t.say("before, it was %s%s, set by %s", allowance(limit), inBrackets(limit.Reason), clipped(limit.Name, 40))
	return printItem(t.tool, c, limit, func() error { return nil })
}

// scopeWords returns the flags that name a scope, for a shell.
func scopeWords(s store.Scope) string {
	var words []string
	for _, member := range []struct{ flag, value string }{
		{"queue", s.Queue}, {"type", s.Type}, {"key", s.Key}, {"target", s.Target}, {"per", string(s.Per)},
	} {
		if member.flag == "key" && member.value != "" {
			member.value = quoted(member.value)
		}
		if member.value != "" {
			words = append(words, "--"+member.flag, member.value)
		}
	}
	return strings.Join(words, " ")
}

package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// maxListedKeys is the highest --limit of "key list". The store counts the waiting tasks of each key.
const maxListedKeys = 10_000

func (t keyCommands) listCommand() *cli.Command {
	return t.verb("list", "list the keys in which ordered tasks wait or are blocked",
		`The ordered tasks of a key were enqueued with --ordered, and start one after the other. ACTIVE is the task
whose turn it is, and STATE its state. SINCE is when it was created, or died if it is dead. WAITING is the number of
tasks that wait for their turn, counted up to 100,000. If DOOMED is yes, all tasks behind the dead task die too, without
an attempt; see the setting after_death.

The keys with a dead task come first. Such a key waits for a person: "task retry" runs the task again, "task cancel" and
"dead archive" give it up, and then the next task of the key starts.

Example:
  holdfast key list --dead`,
		reads(t.tool, openCheckedStore, t.list), outputFlag(), sortFlag(), watchFlag())
}

func (t keyCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, r surface.KeyQuery) error {
	none := "no ordered task waits for its turn"
	if r.Dead {
		none = "no key has a dead task whose turn it is"
	}
	read := func(n int) ([]store.OrderedKey, error) { return b.Store.OrderedKeys(ctx, r.Dead, n) }
	return listTop(t.tool, c, "keys", r.Limit, maxListedKeys, none, read, t.columns()...)
}

func (t keyCommands) columns() []column[store.OrderedKey] {
	return []column[store.OrderedKey]{
		{"key", func(k store.OrderedKey) string { return k.Key }},
		{"active", func(k store.OrderedKey) string { return unlessZero(k.Active) }},
		{"state", func(k store.OrderedKey) string { return string(k.State) }},
		{"since", func(k store.OrderedKey) string { return t.stamp(k.Since) }},
		{"waiting", func(k store.OrderedKey) string { return fmt.Sprint(k.Waiting) }},
		{"doomed", func(k store.OrderedKey) string { return yes(k.Doomed) }},
	}
}

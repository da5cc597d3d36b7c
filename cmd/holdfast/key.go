package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// maxListedKeys is the highest --limit of "key list". The store counts the waiting tasks of each key.
const maxListedKeys = 10_000

// keyCommands implements the commands of key that concern ordered tasks.
type keyCommands struct{ *tool }

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
		t.list, outputFlag(), []cli.Flag{
			&cli.BoolFlag{Name: "dead", Usage: "only keys whose active task is dead"},
			&cli.IntFlag{Name: "limit", Value: 50, Usage: "at most `N` keys; default 50"},
		}, sortFlag(), watchFlag())
}

func (t keyCommands) list(ctx context.Context, c *cli.Context) error {
	limit := c.Int("limit")
	if limit < 1 || limit > maxListedKeys {
		return usageOf(commandName(c), "--limit %d must be at least 1 and at most %d", limit, maxListedKeys)
	}
	none := "no ordered task waits for its turn"
	if c.Bool("dead") {
		none = "no key has a dead task whose turn it is"
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		keys, err := b.Store.OrderedKeys(ctx, c.Bool("dead"), toRead(c, limit, maxListedKeys)+1)
		if err != nil {
			return err
		}
		shown, err := top(c, keys, limit, t.columns())
		if err != nil {
			return err
		}
		if err := list(t.tool, c, "keys", shown, none, t.columns()...); err != nil {
			return err
		}
		if len(keys) > limit {
			t.say("there are more keys; to see them, give a higher --limit")
		}
		return nil
	})
}

func (t keyCommands) columns() []column[store.OrderedKey] {
	return []column[store.OrderedKey]{
		{"key", func(k store.OrderedKey) string { return k.Key }},
		{"active", func(k store.OrderedKey) string {
			if k.Active == 0 {
				return ""
			}
			return k.Active.String()
		}},
		{"state", func(k store.OrderedKey) string { return string(k.State) }},
		{"since", func(k store.OrderedKey) string { return t.stamp(k.Since) }},
		{"waiting", func(k store.OrderedKey) string { return fmt.Sprint(k.Waiting) }},
		{"doomed", func(k store.OrderedKey) string { return yes(k.Doomed) }},
	}
}

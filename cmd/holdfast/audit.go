package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
)

// auditCommands implements the command audit and its subcommands.
type auditCommands struct{ *tool }

func (t auditCommands) command() *cli.Command {
	return noun("audit", "list who changed what, when and why",
		t.verb("list", "list the changes that people made, newest first",
			`Each change of a task, a group, a gate, a limit, a token or a setting has an entry with the values before and after
it; -o json shows them. A page ends early after 4 MiB of values. For the next page, give --before with the last id of
this page.

Example:
  holdfast audit list --task 42 -o jsonl`,
			t.list, outputFlag(), []cli.Flag{
				&cli.StringFlag{Name: "task", Usage: "only changes of the task with the `ID`"},
				&cli.StringFlag{Name: "group", Usage: "only changes of the group with the `FINGERPRINT`"},
				&cli.StringFlag{Name: "setting", Usage: "only changes of the setting with the `KEY`"},
				&cli.StringFlag{Name: "operation", Usage: "only changes that the operation with the `ID` made"},
				&cli.StringFlag{Name: "actor", Usage: "only changes that the person with the `NAME` requested"},
				&cli.StringFlag{Name: "action", Usage: "only changes of the kind `ACTION`: " + strings.Join(actionNames(), ", ")},
				&cli.StringFlag{Name: "since", Usage: "only changes at or after `TIME`: 2h (ago), 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z"},
				&cli.StringFlag{Name: "until", Usage: "only changes before `TIME`"},
				&cli.IntFlag{Name: "limit", Value: 50, Usage: "at most `N` entries; default 50"},
				&cli.StringFlag{Name: "before", Usage: "only entries with an id less than `ID`; for the next page, give the last id of this page"},
			}),
	)
}

// actionNames returns the names of all actions.
func actionNames() []string {
	var names []string
	for _, action := range store.Actions() {
		names = append(names, string(action))
	}
	return names
}

func (t auditCommands) list(ctx context.Context, c *cli.Context) error {
	f, err := auditFilter(c)
	if err != nil {
		return err
	}
	limit := f.Limit
	f.Limit++
	return t.withStore(ctx, c, func(b *app.Backend) error {
		entries, err := b.Store.AuditLog(ctx, f)
		if err != nil {
			return err
		}
		return listPage(t.tool, c, "entries", entries, limit, func(e store.AuditEntry) store.ID { return e.ID }, "no changes match",
			column[store.AuditEntry]{"id", func(e store.AuditEntry) string { return fmt.Sprint(e.ID) }},
			column[store.AuditEntry]{"at", func(e store.AuditEntry) string { return t.stamp(e.At) }},
			column[store.AuditEntry]{"actor", func(e store.AuditEntry) string { return e.Actor.Name }},
			column[store.AuditEntry]{"surface", func(e store.AuditEntry) string { return string(e.Surface) }},
			column[store.AuditEntry]{"action", func(e store.AuditEntry) string { return string(e.Action) }},
			column[store.AuditEntry]{"subject", auditSubject},
			column[store.AuditEntry]{"reason", func(e store.AuditEntry) string { return e.Reason }},
		)
	})
}

// auditSubject returns what an entry is about, such as "task 42".
func auditSubject(e store.AuditEntry) string {
	if e.Task != 0 {
		return "task " + e.Task.String()
	}
	return e.Subject
}

func auditFilter(c *cli.Context) (store.AuditFilter, error) {
	f := store.AuditFilter{Actor: c.String("actor"), Action: store.Action(c.String("action")), Limit: c.Int("limit")}
	for _, name := range []string{"task", "group", "setting", "operation", "actor", "action", "since", "until", "before"} {
		if c.IsSet(name) && strings.TrimSpace(c.String(name)) == "" {
			return f, usageOf(commandName(c), "--%s is empty; leave it out to match any", name)
		}
	}
	if f.Action != "" && !slices.Contains(store.Actions(), f.Action) {
		return f, usageOf(commandName(c), "--action %q is not one of %s", f.Action, strings.Join(actionNames(), ", "))
	}
	if f.Limit < 1 {
		return f, usageOf(commandName(c), "--limit %d must be at least 1", f.Limit)
	}
	if c.IsSet("task") {
		id, err := holdfast.ParseTaskID(c.String("task"))
		if err != nil {
			return f, fmt.Errorf("--task: %w", err)
		}
		f.Task = id
	}
	if c.IsSet("group") {
		if !holdfast.IsFingerprint(c.String("group")) {
			return f, usageOf(commandName(c), "--group %q is not a fingerprint of 16 hexadecimal digits", c.String("group"))
		}
		f.Subject = store.GroupSubject(c.String("group"))
	}
	if c.IsSet("setting") {
		if f.Subject != "" {
			return f, usageOf(commandName(c), "give --group or --setting, not both")
		}
		f.Subject = store.SettingSubject(c.String("setting"))
	}
	for name, into := range map[string]*store.ID{"operation": &f.Operation, "before": &f.Before} {
		if !c.IsSet(name) {
			continue
		}
		id, err := store.ParseID(c.String(name))
		if err != nil {
			return f, usageOf(commandName(c), "--%s: %w", name, err)
		}
		*into = id
	}
	now := time.Now()
	for name, into := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if !c.IsSet(name) {
			continue
		}
		at, err := search.Past(c.String(name), now)
		if err != nil {
			return f, usageOf(commandName(c), "--%s: %w", name, err)
		}
		*into = at
	}
	return f, nil
}

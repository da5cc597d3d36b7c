package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// maxSortedGroups is the maximum number of groups that "dead groups --sort" reads.
const maxSortedGroups = 100_000

func (t deadCommands) groupsCommand() *cli.Command {
	flags := slices.DeleteFunc(filterFlags(), func(f cli.Flag) bool { return slices.Contains([]string{"error", "query"}, f.Names()[0]) })
	return t.verb("groups", "group dead tasks by cause, the largest group first",
		`The tasks of a group have the same type and class of error. Deliveries have the same target and status. If
there was no response, the error texts are equal, apart from ids, numbers, times, addresses, URLs and quoted values.
ERROR is that of the task with the highest id. "dead list" and "dead retry" select a group with --group. A resolved
group is hidden, until another task with its cause dies: then its state is "returned". With --sort, --limit keeps the
first groups in that order.

Example:
  holdfast dead groups --since 2h`,
		plain(t.groups), outputFlag(), requestFlags[groupsQuery](), flags, sortFlag(), watchFlag())
}

// groupsQuery is a part of the request of "dead groups".
type groupsQuery struct {
	Resolved bool `query:"resolved" flag:"-" doc:"Only resolved groups, also those without dead tasks."`
	Limit    int  `query:"limit" flag:"N" default:"50" minimum:"1" doc:"At most so many groups."`
}

func (t deadCommands) groups(ctx context.Context, c *cli.Context) error {
	f, err := filter(c)
	if err != nil {
		return err
	}
	var r groupsQuery
	if err := readRequest(c, &r); err != nil {
		return err
	}
	none := "no dead tasks match"
	if r.Resolved {
		none = "no resolved groups match"
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		read := func(n int) ([]store.DeathGroup, error) {
			found, err := b.Store.DeathGroups(ctx, store.DeathFilter{
				Type: f.Type, Queue: f.Queue, Since: f.Since, Until: f.Until, Resolved: r.Resolved, Limit: n,
			})
			return append([]store.DeathGroup{}, found...), err
		}
		return printFirst(t.tool, c, "groups", r.Limit, maxSortedGroups, none, read,
			column[store.DeathGroup]{"group", func(g store.DeathGroup) string { return g.Fingerprint }},
			column[store.DeathGroup]{"state", func(g store.DeathGroup) string { return string(g.State) }},
			column[store.DeathGroup]{"tasks", func(g store.DeathGroup) string { return fmt.Sprint(g.Tasks) }},
			column[store.DeathGroup]{"last hour", func(g store.DeathGroup) string { return fmt.Sprint(g.LastHour) }},
			column[store.DeathGroup]{"type", func(g store.DeathGroup) string { return g.Type }},
			column[store.DeathGroup]{"class", func(g store.DeathGroup) string { return strings.TrimSpace(g.Class + " " + g.Host) }},
			column[store.DeathGroup]{"first", func(g store.DeathGroup) string { return t.stamp(g.FirstAt) }},
			column[store.DeathGroup]{"last", func(g store.DeathGroup) string { return t.stamp(g.LastAt) }},
			column[store.DeathGroup]{"owner", func(g store.DeathGroup) string { return g.Owner }},
			column[store.DeathGroup]{"note", func(g store.DeathGroup) string { return g.Note }},
			column[store.DeathGroup]{"error", func(g store.DeathGroup) string { return g.Error }},
		)
	})
}

// groupCommands returns the commands for one group.
func (t deadCommands) groupCommands() []*cli.Command {
	change := func(name, usage, args, description, example string) *cli.Command {
		return t.verb(name+" "+args, usage,
			description+`
The audit log has the change. With --if-version the command changes nothing if another person has changed the group
since "dead show" printed that version; the exit code is then 4.

Example:
  `+example,
			changes(t.tool, openCheckedStore, func(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r groupChange) error {
				return t.changeGroup(ctx, c, b, by, r, store.Action(name))
			}), outputFlag())
	}
	return []*cli.Command{
		t.verb("show GROUP", "show everything about a group of dead tasks",
			`Shows the state of the group, its error and target, its dead tasks by queue and hour, and what people did
with it. GROUP is a fingerprint from "dead groups" or "task get"; its first 4 or more digits are enough, if no other
group begins with them. An unknown group has the exit code 3.

Example:
  holdfast dead show 3f9ad02c41b7e685`,
			reads(t.tool, openCheckedStore, t.show), outputFlag()),
		change(string(store.ActionNote), "write a note about a group of dead tasks", "GROUP TEXT",
			`The note replaces the one before; an empty text removes it.`,
			`holdfast dead note 3f9ad02c41b7e685 "the bank is down until noon"`),
		change(string(store.ActionAssign), "name the person who takes care of a group of dead tasks", "GROUP OWNER",
			`The owner replaces the one before; an empty text removes it.`,
			`holdfast dead assign 3f9ad02c41b7e685 anna`),
		change(string(store.ActionResolve), "hide a group of dead tasks until it returns", "GROUP",
			`The dead tasks stay as they are. When another task with the same cause dies, the group returns: "dead groups"
shows it again, with the state "returned".`,
			`holdfast dead resolve 3f9ad02c41b7e685 --reason "fixed in version 4.2"`),
		change(string(store.ActionReopen), "show a resolved group of dead tasks again", "GROUP",
			`The state of the group becomes "open".`,
			`holdfast dead reopen 3f9ad02c41b7e685`),
	}
}

// groupOnly is the request of a command that reads a group.
type groupOnly struct {
	Group string `arg:"0"`
}

// Check returns an error if the argument is not a fingerprint.
func (r groupOnly) Check() error {
	_, _, err := holdfast.ParseFingerprint(r.Group)
	return err
}

// groupChange is the request of a command that changes a group.
type groupChange struct {
	groupOnly
	Text    string `arg:"1"`
	Version int64  `json:"if_version" flag:"N" minimum:"1" doc:"Only if the group still has this version."`
}

func (t deadCommands) changeGroup(
	ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r groupChange, action store.Action,
) error {
	fingerprint, err := b.Fingerprint(ctx, r.Group)
	if err != nil {
		return err
	}
	group, err := b.Store.ChangeDeathGroup(ctx, by, store.GroupChange{Fingerprint: fingerprint, Action: action, Text: r.Text, Version: r.Version})
	if err != nil {
		return err
	}
	return stored(printRow(t.tool, c, group,
		column[store.DeathGroup]{"group", func(g store.DeathGroup) string { return g.Fingerprint }},
		column[store.DeathGroup]{"state", func(g store.DeathGroup) string { return string(g.State) }},
		column[store.DeathGroup]{"owner", func(g store.DeathGroup) string { return g.Owner }},
		column[store.DeathGroup]{"note", func(g store.DeathGroup) string { return g.Note }},
	), "the change of the group is stored")
}

func (t deadCommands) show(ctx context.Context, c *cli.Context, b *app.Backend, r groupOnly) error {
	group, err := surface.DeathGroup(ctx, b, r.Group)
	if err != nil {
		return err
	}
	return printItem(t.tool, c, group, func() error { return t.describeGroup(group) })
}

// describeGroup prints a group as lines with a label and a text, and its history as a table.
func (t deadCommands) describeGroup(g surface.DeathGroupDetails) error {
	var queues []string
	for _, q := range g.Queues {
		queues = append(queues, fmt.Sprintf("%s %d", q.Queue, q.Tasks))
	}
	target := g.Host
	if g.Status != 0 {
		target = strings.TrimSpace(fmt.Sprintf("%s, answer %d %s", g.Host, g.Status, http.StatusText(g.Status)))
	}
	state := string(g.State)
	if !g.ResolvedAt.IsZero() {
		state += ", resolved " + t.absoluteAndRelative(g.ResolvedAt)
	}
	err := t.fields([]field{
		{"group", g.Fingerprint},
		{"state", state},
		{"version", fmt.Sprint(g.Version)},
		{"owner", g.Owner},
		{"type", g.Type},
		{"class", g.Class},
		{"target", target},
		{"tasks", fmt.Sprint(g.Tasks)},
		{"per hour", perHour(g.Hours)},
		{"queues", strings.Join(queues, ", ")},
		{"first seen", t.absoluteAndRelative(g.FirstAt)},
		{"last seen", t.absoluteAndRelative(g.LastAt)},
		{"sample", "task " + g.Sample.String()},
		{"error", g.Error},
	})
	if err = errors.Join(err, t.block("note", hanging(g.Note))); err != nil || len(g.History) == 0 {
		return err
	}
	fmt.Fprintln(t.stdout)
	return printTable(t.tool, g.History, "", []column[surface.AuditEntry]{
		{"at", func(e surface.AuditEntry) string { return t.stamp(e.At) }},
		{"actor", func(e surface.AuditEntry) string { return e.Actor.Name }},
		{"action", func(e surface.AuditEntry) string { return string(e.Action) }},
		{"before", func(e surface.AuditEntry) string { return string(unescaped(e.Before)) }},
		{"after", func(e surface.AuditEntry) string { return string(unescaped(e.After)) }},
		{"reason", func(e surface.AuditEntry) string { return e.Reason }},
	})
}

// perHour formats the numbers of the last 24 hours, the last hour first. It leaves out the zeros at the end, and
// returns "" if there are only zeros.
func perHour(hours [24]int64) string {
	numbers := hours[:]
	for len(numbers) > 0 && numbers[len(numbers)-1] == 0 {
		numbers = numbers[:len(numbers)-1]
	}
	if len(numbers) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d in the last hour", numbers[0])
	if before := numbers[1:]; len(before) > 0 {
		text += "; before that " + strings.Trim(fmt.Sprint(slices.Clone(before)), "[]")
	}
	return text
}

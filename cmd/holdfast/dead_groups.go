package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

func (t deadCommands) groupsCommand() *cli.Command {
	var flags []cli.Flag
	for _, f := range filterFlags() {
		if name := f.Names()[0]; name != "error" && name != "query" {
			flags = append(flags, f)
		}
	}
	return &cli.Command{
		Name:  "groups",
		Usage: "group dead tasks by cause, the largest group first",
		Description: `The tasks of a group have the same type and class of error. Deliveries have the same target and status. If
there was no response, the error texts are equal, apart from ids, numbers, times, addresses, URLs and quoted
values.
ERROR is that of the task with the highest id. "dead list" and "dead retry" select a group with --group.

Example:
  holdfast dead groups --since 2h`,
		Flags:  append(append([]cli.Flag{outputFlag()}, flags...), limitFlag(50), sortFlag(), watchFlag()),
		Action: t.do(t.groups),
	}
}

// deathGroup is a group of dead tasks, as commands print it.
type deathGroup struct {
	Group    string          `json:"group"`
	Type     string          `json:"type"`
	Class    string          `json:"class"`
	Host     string          `json:"host,omitempty"`
	Status   int             `json:"status,omitempty"`
	Tasks    int64           `json:"tasks"`
	LastHour int64           `json:"last_hour"`
	FirstAt  time.Time       `json:"first_at"`
	LastAt   time.Time       `json:"last_at"`
	Sample   holdfast.TaskID `json:"sample"`
	Error    string          `json:"error"`
}

func (t deadCommands) groups(ctx context.Context, c *cli.Context) error {
	f, err := filter(c)
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		found, err := b.Store.DeathGroups(ctx, store.DeathFilter{Type: f.Type, Queue: f.Queue, Since: f.Since, Until: f.Until, Limit: f.Limit})
		if err != nil {
			return err
		}
		groups := make([]deathGroup, len(found))
		for i, g := range found {
			groups[i] = deathGroup{g.Fingerprint, g.Type, g.Class, g.Host, g.Status, g.Tasks, g.LastHour, g.FirstAt, g.LastAt, g.Sample, g.Error}
		}
		return list(t.tool, c, groups, "no dead tasks match",
			column[deathGroup]{"group", func(g deathGroup) string { return g.Group }},
			column[deathGroup]{"tasks", func(g deathGroup) string { return fmt.Sprint(g.Tasks) }},
			column[deathGroup]{"last hour", func(g deathGroup) string { return fmt.Sprint(g.LastHour) }},
			column[deathGroup]{"type", func(g deathGroup) string { return g.Type }},
			column[deathGroup]{"class", func(g deathGroup) string { return strings.TrimSpace(g.Class + " " + g.Host) }},
			column[deathGroup]{"first", func(g deathGroup) string { return t.stamp(g.FirstAt) }},
			column[deathGroup]{"last", func(g deathGroup) string { return t.stamp(g.LastAt) }},
			column[deathGroup]{"error", func(g deathGroup) string { return clipped(g.Error, 60) }},
		)
	})
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/surface"
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

func (t deadCommands) groups(ctx context.Context, c *cli.Context) error {
	f, err := filter(c)
	if err != nil {
		return err
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		groups, err := surface.DeathGroups(ctx, b, store.DeathFilter{Type: f.Type, Queue: f.Queue, Since: f.Since, Until: f.Until, Limit: f.Limit})
		if err != nil {
			return err
		}
		return list(t.tool, c, groups, "no dead tasks match",
			column[surface.DeathGroup]{"group", func(g surface.DeathGroup) string { return g.Group }},
			column[surface.DeathGroup]{"tasks", func(g surface.DeathGroup) string { return fmt.Sprint(g.Tasks) }},
			column[surface.DeathGroup]{"last hour", func(g surface.DeathGroup) string { return fmt.Sprint(g.LastHour) }},
			column[surface.DeathGroup]{"type", func(g surface.DeathGroup) string { return g.Type }},
			column[surface.DeathGroup]{"class", func(g surface.DeathGroup) string { return strings.TrimSpace(g.Class + " " + g.Host) }},
			column[surface.DeathGroup]{"first", func(g surface.DeathGroup) string { return t.stamp(g.FirstAt) }},
			column[surface.DeathGroup]{"last", func(g surface.DeathGroup) string { return t.stamp(g.LastAt) }},
			column[surface.DeathGroup]{"error", func(g surface.DeathGroup) string { return clipped(g.Error, 60) }},
		)
	})
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/surface"
)

func (t gateCommands) getTargetCommand() *cli.Command {
	return t.verb("get TARGET", "show the breaker, the pause and the limits of a target",
		`TARGET is a URL, or a host with or without a port; without a scheme, https. Its scheme, host and port count.

A worker trips the breaker of a target that fails; "tripped by" has the answers. No task of the target starts until the
next probes, which are up to three different tasks. If one succeeds, the breaker is ramping: "probes" is the number of
tasks that start at a time, which doubles while the target answers. If they fail, the breaker is open again. "last
fault" is the latest answer that counted as a fault. "blocked" is the number of tasks that wait at the breaker, the
pause and the limits, each counted up to 100,000.

The exit code is 3 if the target has no breaker that has tripped, no pause and no limit.

Example:
  holdfast target get api.example.com`,
		reads(t.tool, openCheckedStore, t.getTarget), outputFlag(), watchFlag())
}

func (t gateCommands) getTarget(ctx context.Context, c *cli.Context, b *app.Backend, r surface.TargetQuery) error {
	target, err := surface.TargetOf(ctx, b, r.Target)
	if err != nil {
		return notFound(err, "see: holdfast gate list")
	}
	return printItem(t.tool, c, target, func() error { return t.describeTarget(target) })
}

// describeTarget prints a target as lines with a label and a text.
func (t gateCommands) describeTarget(target surface.Target) error {
	lines := []field{{"target", target.Target}, {"state", target.State}}
	if b := target.Breaker; b != nil {
		lines = append(lines,
			field{"since", t.absoluteAndRelative(b.ClosedAt)},
			field{"tripped by", target.TrippedBy},
			field{"last fault", b.Reason},
			field{"next probe", cmp.Or(t.absoluteAndRelative(untilOf(surface.GateOrLimit{ListedGate: *b})), "now")},
			field{"probes", fmt.Sprintf("%d at a time", b.Breaker.Probes)},
			field{"what to do", "repair the target, and its tasks start by themselves; to start all now: holdfast target resume " + target.Target})
	}
	if p := target.Pause; p != nil {
		lines = append(lines, field{"paused", fmt.Sprintf("by %s, %s, %s%s", clipped(p.Name, 40), t.absoluteAndRelative(p.ClosedAt), t.pauseEnd(p.Gate), inBrackets(p.Reason))})
	}
	for _, l := range target.Limits {
		about := strings.TrimPrefix(l.Scope.String(), "limit ")
		if l.Scope.Target == target.Target && l.Queue+l.Type+l.Key+string(l.Per) == "" {
			about = "all tasks"
		}
		lines = append(lines, field{"limit", fmt.Sprintf("%s: %s; %s in use, %d blocked", about, allowance(l.Limit), plural(l.InUse, "permit"), l.Blocked)})
	}
	return t.fields(append(lines, field{"blocked", fmt.Sprint(target.Blocked)}))
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

func stateFlag() cli.Flag {
	return &cli.StringFlag{Name: "state", Usage: "only tasks in one of the states `STATE,...`: " + strings.Join(stateNames(), ", ")}
}

func filterFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "type", Usage: "only tasks of the `TYPE`"},
		&cli.StringFlag{Name: "lane", Usage: "only tasks of the `LANE`"},
		&cli.StringFlag{Name: "error", Usage: "only tasks whose last error contains `TEXT`, in any case"},
		&cli.StringFlag{Name: "since", Usage: "only tasks that ended, or were created if they have not ended, at or after `TIME`: " +
			"2h (ago), 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z"},
		&cli.StringFlag{Name: "until", Usage: "the same before `TIME`"},
	}
}

func limitFlag(standard int) cli.Flag {
	f := &cli.IntFlag{Name: "limit", Value: standard, Usage: "at most `N` tasks"}
	if standard > 0 {
		f.Usage += fmt.Sprintf("; default %d", standard)
	} else {
		f.Usage += "; default all"
	}
	return f
}

func beforeFlag() cli.Flag {
	return &cli.StringFlag{Name: "before", Usage: "only tasks with an id smaller than `ID`: the next page after it"}
}

// listFlags are the flags of a list of tasks that is shown a page at a time.
func listFlags() []cli.Flag {
	return []cli.Flag{limitFlag(50), beforeFlag(), sortFlag(), watchFlag()}
}

func stateNames() []string {
	var names []string
	for _, state := range holdfast.States() {
		names = append(names, string(state))
	}
	return names
}

// filter reads the flags of filterFlags, stateFlag, limitFlag and beforeFlag, those that the
// command has.
func filter(c *cli.Context) (store.Filter, error) {
	f := store.Filter{Type: c.String("type"), Lane: c.String("lane"), Error: c.String("error"), Limit: c.Int("limit")}
	for _, name := range []string{"type", "lane", "error", "state", "since", "until"} {
		if c.IsSet(name) && c.String(name) == "" { // an empty variable in a script must not mean everything
			return f, usageOf(commandName(c), "--%s is empty; leave it out to mean any", name)
		}
	}
	for name, at := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if c.IsSet(name) {
			var err error
			if *at, err = past(c.String(name), time.Now()); err != nil {
				return f, usageOf(commandName(c), "--%s %w", name, err)
			}
		}
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, usageOf(commandName(c), "--since must be before --until")
	}
	if c.IsSet("limit") && f.Limit < 1 {
		return f, usageOf(commandName(c), "--limit %d must be at least 1", f.Limit)
	}
	for name := range strings.SplitSeq(c.String("state"), ",") {
		state := holdfast.State(strings.TrimSpace(name))
		switch {
		case state == "":
		case !state.Valid():
			return f, usageOf(commandName(c), "unknown state %q; use %s", name, strings.Join(stateNames(), ", "))
		case !slices.Contains(f.States, state):
			f.States = append(f.States, state)
		}
	}
	if c.IsSet("before") {
		id, err := holdfast.ParseTaskID(c.String("before"))
		if err != nil {
			return f, fmt.Errorf("--before: %w", err)
		}
		f.Before = id
	}
	return f, nil
}

// listTasks lists what the filter's flags choose. states, if any, are the only ones.
func listTasks(ctx context.Context, t *tool, c *cli.Context, states []holdfast.State, none string, columns ...column[holdfast.Task]) error {
	f, err := filter(c)
	if err != nil {
		return err
	}
	if states != nil {
		f.States = states
	}
	columns = append([]column[holdfast.Task]{
		{"id", func(task holdfast.Task) string { return task.ID.String() }},
		{"type", func(task holdfast.Task) string { return task.Type }},
		{"lane", func(task holdfast.Task) string { return task.Lane }},
	}, columns...)
	limit := f.Limit
	if limit < math.MaxInt {
		f.Limit++ // to see whether there is a next page
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		tasks, err := b.Store.List(ctx, f)
		if err != nil {
			return err
		}
		var next *holdfast.TaskID
		if len(tasks) > limit {
			tasks = tasks[:limit]
			last := tasks[limit-1].ID
			next = &last
		}
		if chosen, _ := format(c); chosen == asJSON {
			return jsonPage(t, c, tasks, next, columns)
		}
		if err := list(t, c, tasks, none, columns...); err != nil {
			return err
		}
		if next != nil {
			t.say("there are more: add --before %s for the next page", next)
		}
		return nil
	})
}

// jsonPage writes tasks with the cursor of the next page, which is null on the last one.
func jsonPage(t *tool, c *cli.Context, tasks []holdfast.Task, next *holdfast.TaskID, columns []column[holdfast.Task]) error {
	tasks, err := sorted(c, tasks, columns)
	if err != nil {
		return err
	}
	var array strings.Builder
	if err := jsonArray(&array, tasks); err != nil {
		return err
	}
	cursor, err := json.Marshal(next)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.stdout, "{\"tasks\": %s,\n\"next\": %s}\n", strings.TrimSuffix(array.String(), "\n"), cursor)
	return err
}

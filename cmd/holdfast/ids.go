package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/surface"
)

// printStates prints the states of tasks. In table format it prints nothing if there are no tasks.
func printStates(t *tool, c *cli.Context, tasks []surface.TaskState) error {
	if chosen, _ := format(c); chosen == asTable && len(tasks) == 0 {
		return nil
	}
	return list(t, c, "tasks", tasks, "",
		column[surface.TaskState]{"id", func(s surface.TaskState) string { return s.ID.String() }},
		column[surface.TaskState]{"state", func(s surface.TaskState) string { return string(s.State) }},
	)
}

// taskIDs parses all arguments as ids of tasks.
func taskIDs(c *cli.Context) ([]holdfast.TaskID, error) {
	ids := make([]holdfast.TaskID, c.NArg())
	for i, text := range c.Args().Slice() {
		id, err := holdfast.ParseTaskID(text)
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	return ids, nil
}

// each calls try for every id and prints the resulting states. After an error it continues with the next id, unless a
// server is unavailable or the command was interrupted.
func each(t *tool, c *cli.Context, ids []holdfast.TaskID, try func(holdfast.TaskID) (surface.TaskState, error)) error {
	done := []surface.TaskState{}
	var failed []error
	for _, id := range ids {
		result, err := try(id)
		if err == nil {
			done = append(done, result)
			continue
		}
		failed = append(failed, err)
		if errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, context.Canceled) {
			break
		}
	}
	if err := printStates(t, c, done); err != nil {
		return err
	}
	return someFailed(failed, len(done))
}

// someFailed returns the error of a command on several items. failed has the errors of items, and done is the number of
// items without an error. If some items succeeded, the exit code is exitPartly, unless a server is unavailable.
func someFailed(failed []error, done int) error {
	if len(failed) == 0 {
		return nil
	}
	code := exitCode(failed[len(failed)-1])
	if done > 0 && code != exitUnavailable {
		code = exitPartly
	}
	return &failure{err: errors.Join(failed...), code: code}
}

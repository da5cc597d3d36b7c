package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/surface"
)

// printStates prints the states of tasks. In table format it prints nothing if there are no tasks.
func printStates(t *tool, c *cli.Context, tasks []surface.TaskState) error {
	return printList(t, c, "tasks", tasks, "",
		column[surface.TaskState]{"id", func(s surface.TaskState) string { return s.ID.String() }},
		column[surface.TaskState]{"state", func(s surface.TaskState) string { return string(s.State) }},
	)
}

// forEach calls try for every item, and returns the results and the errors. After an error it continues with the next
// item, unless a server is unavailable or the command was interrupted.
func forEach[T, R any](items []T, try func(T) (R, error)) (done []R, failed []error) {
	done = []R{}
	for _, item := range items {
		result, err := try(item)
		if err == nil {
			done = append(done, result)
			continue
		}
		failed = append(failed, err)
		if errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, context.Canceled) {
			break
		}
	}
	return done, failed
}

// changeEach calls change for every id, and prints the states of the changed tasks; see forEach.
func changeEach(t *tool, c *cli.Context, ids []holdfast.TaskID, change func(holdfast.TaskID) (surface.TaskState, error)) error {
	done, failed := forEach(ids, change)
	if err := printStates(t, c, done); err != nil {
		return errors.Join(stored(err, "%s", changedTasks(done)), someFailed(failed, len(done)))
	}
	return someFailed(failed, len(done))
}

// changedTasks returns a sentence that names the changed tasks, but at most ten of them.
func changedTasks(done []surface.TaskState) string {
	const most = 10
	var ids []string
	for _, task := range done[:min(len(done), most)] {
		ids = append(ids, task.ID.String())
	}
	if len(done) > most {
		ids = append(ids, "…")
	}
	return fmt.Sprintf("the command is done for %s: %s", plural(len(done), "task"), strings.Join(ids, " "))
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

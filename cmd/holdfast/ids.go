package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
)

// standing is a task after a command, as it is printed.
type standing struct {
	ID    holdfast.TaskID `json:"id"`
	State holdfast.State  `json:"state"`
}

func standings(t *tool, c *cli.Context, tasks []standing) error {
	if chosen, _ := format(c); chosen == asTable && len(tasks) == 0 {
		return nil // every one has failed, and that was said
	}
	return list(t, c, tasks, "",
		column[standing]{"id", func(s standing) string { return s.ID.String() }},
		column[standing]{"state", func(s standing) string { return string(s.State) }},
	)
}

// taskIDs reads the arguments; all of them, before anything is done.
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

// each tries every id and prints what became of it. One failure leaves the others alone, unless a
// server is away.
func each(t *tool, c *cli.Context, ids []holdfast.TaskID, try func(holdfast.TaskID) (standing, error)) error {
	done := []standing{}
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
	if err := standings(t, c, done); err != nil {
		return err
	}
	return someFailed(failed, len(done))
}

// someFailed is the error of a command on several things of which some failed. If a server is
// away that is what counts.
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

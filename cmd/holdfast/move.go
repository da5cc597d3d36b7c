package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
)

func (t *tool) taskRetryCommand() *cli.Command {
	return &cli.Command{
		Name:      "retry",
		Usage:     "send dead or cancelled tasks again, with a fresh budget of attempts",
		ArgsUsage: "ID...",
		Description: `With several ids each is tried, and the exit code is 5 if only some could be moved.

Example:
  holdfast task retry 42 43`,
		Flags:  []cli.Flag{outputFlag()},
		Action: t.do(t.move(holdfast.EventRequeue)),
	}
}

func (t *tool) taskCancelCommand() *cli.Command {
	return &cli.Command{
		Name:      "cancel",
		Usage:     "stop tasks that are ready, running or dead",
		ArgsUsage: "ID...",
		Description: `A running task's handler is told to stop, on whichever machine it runs; what it did until
then is not undone. With several ids each is tried, and the exit code is 5 if only some could be
moved.

Example:
  holdfast task cancel 42`,
		Flags:  []cli.Flag{outputFlag()},
		Action: t.do(t.move(holdfast.EventCancel)),
	}
}

// standing is a task after a command, as it is printed.
type standing struct {
	ID    holdfast.TaskID `json:"id"`
	State holdfast.State  `json:"state"`
}

func (t *tool) standings(c *cli.Context, tasks []standing) error {
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

// move is a command that does what a person asks of the tasks named as arguments.
func (t *tool) move(event holdfast.Event) action {
	return func(ctx context.Context, c *cli.Context) error {
		ids, err := taskIDs(c)
		if err != nil {
			return err
		}
		return t.withStore(ctx, c, func(b *app.Backend) error {
			return t.each(c, ids, func(id holdfast.TaskID) (standing, error) {
				task, err := b.Move(ctx, id, event)
				return standing{task.ID, task.State}, err
			})
		})
	}
}

// each tries every id and prints what became of it. One failure leaves the others alone, unless a
// server is away.
func (t *tool) each(c *cli.Context, ids []holdfast.TaskID, try func(holdfast.TaskID) (standing, error)) error {
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
	if err := t.standings(c, done); err != nil {
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

func (t *tool) taskWaitCommand() *cli.Command {
	return &cli.Command{
		Name:      "wait",
		Usage:     "wait until tasks are finished",
		ArgsUsage: "ID...",
		Description: `Prints the state each task ended in. The exit code is 0 if every one is done, 1 if one is dead,
cancelled or archived, and 124 if the time is over first.

Example:
  holdfast task wait 42 --timeout 30s`,
		Flags: []cli.Flag{
			outputFlag(),
			&cli.DurationFlag{Name: "timeout", Usage: "give up after `DURATION`, for example 30s; default never"},
		},
		Action: t.do(t.taskWait),
	}
}

func (t *tool) taskWait(ctx context.Context, c *cli.Context) error {
	ids, err := taskIDs(c)
	if err != nil {
		return err
	}
	limit := c.Duration("timeout")
	if c.IsSet("timeout") && limit <= 0 {
		return usageOf(commandName(c), "--timeout %s must be more than 0", limit)
	}
	return t.withStore(ctx, c, func(b *app.Backend) error {
		waiting, cancel := ctx, context.CancelFunc(func() {})
		if limit > 0 {
			waiting, cancel = context.WithTimeout(ctx, limit)
		}
		defer cancel()
		ended := []standing{}
		var failed []error
		for _, id := range ids {
			task, err := b.Await(waiting, id)
			switch {
			case err != nil && ctx.Err() == nil && waiting.Err() != nil:
				err = timedOut(task, id, limit)
				fallthrough
			case err != nil:
				return errors.Join(t.standings(c, ended), errors.Join(failed...), err)
			case task.State != holdfast.Done:
				failed = append(failed, notDone(task))
			}
			ended = append(ended, standing{task.ID, task.State})
		}
		return errors.Join(t.standings(c, ended), errors.Join(failed...))
	})
}

func timedOut(task holdfast.Task, id holdfast.TaskID, limit time.Duration) error {
	state := "not finished"
	if task.ID != 0 {
		state = "still " + string(task.State)
	}
	return &failure{err: fmt.Errorf("task %s is %s after %s", id, state, limit), code: exitTimeout}
}

func notDone(task holdfast.Task) error {
	text := fmt.Sprintf("task %s is %s", task.ID, task.State)
	if task.LastError != "" {
		text += ": " + clipped(task.LastError, 200)
	}
	return errors.New(text)
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

func (t taskCommands) editCommand() *cli.Command {
	return t.verb("edit ID", "change the payload, the queue, the time, the attempts or the tags of a task",
		`Prints the difference, and on a terminal asks for confirmation. Without a flag for a new value, it opens the
task in $VISUAL or $EDITOR; if the edit fails, your text stays in a file that the error names. A task that is running or
done cannot be edited. If a worker has a typed handler for the type of the task, a new payload must fit the Go type of
the handler that was registered last. A new payload of type http must also be one that "enqueue" accepts. An edit gives
the task the next attempt number; with --if-attempt the command changes nothing if the task has another one by now. The
audit log keeps the values from before, and "task undo" restores them until a worker claims the task.

Example:
  holdfast task edit 42 --payload @fixed.json --retry --reason "wrong address"`,
		changes(t.tool, openCheckedStore, t.edit), outputFlag(), yesFlag())
}

// editRequest is the request of "task edit".
type editRequest struct {
	one[holdfast.TaskID]
	Payload        string             `json:"payload" flag:"JSON" doc:"The new payload: JSON, @FILE, or - for stdin."`
	Patch          string             `json:"patch" flag:"JSON" doc:"A JSON Patch (RFC 6902), at most 1000 steps, of payload, queue, priority, max_attempts, run_at and tags: JSON, @FILE, or - for stdin."`
	Queue          string             `json:"queue" flag:"QUEUE" doc:"The new queue."`
	Priority       *holdfast.Priority `json:"priority" flag:"PRIORITY" doc:"The new priority: low, normal, high or critical, or a number from 0 to 9."`
	MaxAttempts    int                `json:"max_attempts" flag:"N" minimum:"1" doc:"The task is dead after so many failures."`
	At             string             `json:"at" flag:"TIME" doc:"Run a ready task no earlier than this time: 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z."`
	Tags           []string           `json:"tag" flag:"WORD" doc:"A new tag instead of all present ones; give the flag once for each tag."`
	IfAttempt      *int               `json:"if_attempt" flag:"N" doc:"Change the task only if it is at this attempt."`
	Retry          bool               `json:"retry" flag:"-" doc:"Then retry the task, which is dead or cancelled."`
	SkipValidation bool               `json:"skip_validation" flag:"-" doc:"Accept a payload that does not fit its type; the audit log shows that."`
	DryRun         bool               `json:"dry_run" flag:"-" doc:"Change nothing; only print the difference."`
}

func (t taskCommands) edit(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r editRequest) (err error) {
	var saved draft
	defer func() { err = saved.end(err) }()
	task, err := b.Store.Task(ctx, r.ID)
	if err != nil {
		return err
	}
	if r.IfAttempt != nil && *r.IfAttempt != task.Attempt {
		return fmt.Errorf("%w: task %s is at attempt %d, not %d; read it again before you edit it", holdfast.ErrConflict, r.ID, task.Attempt, *r.IfAttempt)
	}
	to, err := t.edited(ctx, c, r, task, b.Config.Producer.MaxPayload, &saved)
	if err != nil {
		return err
	}
	validation := change.Validation(r.SkipValidation)
	requested, err := b.PlanEdit(ctx, task, to, validation)
	if err != nil {
		return err
	}
	if r.Retry {
		if _, err := change.Of(store.ActionRetry, task); err != nil {
			return err
		}
	}
	difference, err := differenceOf(task, requested)
	if err != nil {
		return err
	}
	fmt.Fprint(t.stderr, printable(difference))
	if r.DryRun {
		return nil
	}
	if isTerminal(t.stdin) {
		if err := t.confirm(c, "edit task "+r.ID.String()); err != nil {
			return err
		}
	}
	if task, err = b.Edit(ctx, by, task, to, validation); err != nil {
		return err
	}
	if err := saved.end(nil); err != nil {
		return err
	}
	if r.Retry {
		if task, err = b.Act(ctx, by, r.ID, store.ActionRetry); err != nil {
			return fmt.Errorf("the task is edited, but not retried: %w", err)
		}
	}
	return stored(printStates(t.tool, c, []surface.TaskState{{ID: task.ID, State: task.State}}), "task %s is edited", r.ID)
}

// edited returns the document of the task with the values of the flags. Without these flags, it opens the document in
// an editor, and sets saved.
func (t taskCommands) edited(
	ctx context.Context, c *cli.Context, r editRequest, task holdfast.Task, maxPayload int, saved *draft,
) (to change.Document, err error) {
	to = change.DocumentOf(task)
	if !slices.ContainsFunc([]string{"payload", "patch", "queue", "priority", "at", "max-attempts", "tag"}, c.IsSet) {
		return t.editor(ctx, c, to, saved)
	}
	if r.Patch != "" {
		patch, err := t.input("patch", r.Patch, maxPayload)
		if err != nil {
			return to, err
		}
		if to, err = change.Patch(ctx, task, patch, maxPayload); err != nil {
			return to, err
		}
	}
	if r.Payload != "" {
		if to.Payload, err = t.input("payload", r.Payload, maxPayload); err != nil {
			return to, err
		}
	}
	if r.Priority != nil {
		to.Priority = *r.Priority
	}
	to.Queue, to.MaxAttempts = cmp.Or(r.Queue, to.Queue), cmp.Or(r.MaxAttempts, to.MaxAttempts)
	if len(r.Tags) > 0 {
		to.Tags = r.Tags
	}
	if r.At != "" {
		if to.RunAt, err = search.Time(r.At); err != nil {
			return to, usageOf(commandName(c), "--at %w", err)
		}
	}
	return to, nil
}

// draft is the file that a person edits.
type draft struct {
	path     string // empty if there is no file
	original string // the text before the edit
}

// end removes the file. If err is not nil and the person has changed the text, end keeps the file, and returns err with
// its name.
func (d *draft) end(err error) error {
	if d.path == "" {
		return err
	}
	path := d.path
	d.path = ""
	if err != nil {
		if text, readErr := os.ReadFile(path); readErr == nil && string(text) != d.original {
			return fmt.Errorf("%w; your text is in %s", err, path)
		}
	}
	_ = os.Remove(path) // after an error, the system deletes the temporary file later
	return err
}

// editor opens a document in the editor of the user and returns the saved document. It sets saved; the caller must call
// its method end.
func (t taskCommands) editor(ctx context.Context, c *cli.Context, d change.Document, saved *draft) (change.Document, error) {
	program := t.variable("VISUAL")
	if program == "" {
		program = t.variable("EDITOR")
	}
	if program == "" || !isTerminal(t.stdin) {
		return d, usageOf(commandName(c), "nothing to change; give --payload, --patch, --queue, --at, --tag or --max-attempts, or set EDITOR on a terminal")
	}
	text, err := indentedDocument(d)
	if err != nil {
		return d, err
	}
	file, err := os.CreateTemp("", "holdfast-task-*.json")
	if err != nil {
		return d, fmt.Errorf("edit: %w", err)
	}
	*saved = draft{file.Name(), text}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return d, fmt.Errorf("edit: %w", err)
	}
	// The variable may have arguments, as in "code --wait". A shell splits them as the user expects.
	command := exec.CommandContext(ctx, "sh", "-c", program+` "$1"`, "sh", saved.path)
	command.Stdin, command.Stdout, command.Stderr = t.stdin, t.stderr, t.stderr
	if err := command.Run(); err != nil {
		return d, fmt.Errorf("editor %q: %w; nothing was changed", program, err)
	}
	edited, err := os.ReadFile(saved.path)
	if err != nil {
		return d, fmt.Errorf("edit: %w", err)
	}
	return change.ParseDocument(edited)
}

// differenceOf returns the difference that an edit makes, in the unified format.
func differenceOf(task holdfast.Task, requested store.Change) (string, error) {
	before := change.DocumentOf(task)
	after := before
	if e := requested.Edit; e != nil {
		if len(e.Payload) > 0 {
			after.Payload = e.Payload
		}
		if e.Queue != "" {
			after.Queue = e.Queue
		}
		if e.Priority != nil {
			after.Priority = *e.Priority
		}
		if e.MaxAttempts != 0 {
			after.MaxAttempts = max(0, e.MaxAttempts)
		}
		if !e.RunAt.IsZero() {
			after.RunAt = e.RunAt.UTC()
		}
		if e.Tags != nil {
			after.Tags = *e.Tags
		}
	}
	was, err := indentedDocument(before)
	if err != nil {
		return "", err
	}
	is, err := indentedDocument(after)
	if err != nil {
		return "", err
	}
	name := "task " + task.ID.String()
	return udiff.Unified(name, name+" edited", was, is), nil
}

// indentedDocument returns a document in the form that a person edits.
func indentedDocument(d change.Document) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(d)
	return text.String(), err
}

func (t taskCommands) undoCommand() *cli.Command {
	return t.verb("undo ID...", "take back the last retry, archive or edit of a task",
		`A retry or an edit can be taken back until a worker claims the task, and an archive as long as the task is
archived. "audit list --task ID" shows the changes of a task.

Example:
  holdfast task undo 42`,
		t.change(func(b *app.Backend, ctx context.Context, by store.Actor, id holdfast.TaskID) (holdfast.Task, error) {
			return b.Undo(ctx, by, id)
		}), outputFlag())
}

// input returns the JSON that the value of a flag describes: JSON, @file, or - for stdin. limit is in bytes.
func (t *tool) input(flag, text string, limit int) ([]byte, error) {
	from := t.stdin
	switch path, isFile := strings.CutPrefix(text, "@"); {
	case isFile:
		file, err := os.Open(path)
		if err != nil {
			return nil, usage("--%s: %w", flag, err)
		}
		defer file.Close()
		from = file
	case text != "-":
		from = strings.NewReader(text)
	}
	data, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err != nil {
		return nil, usage("--%s: %w", flag, err)
	}
	rest, err := io.Copy(io.Discard, io.LimitReader(from, 1<<30)) // counts the bytes for the error
	if err != nil {
		return nil, usage("--%s: %w", flag, err)
	}
	if size := int64(len(data)) + rest; size > int64(limit) {
		return nil, usage("the %s has %d bytes, the limit is %d; store large data elsewhere and send a reference", flag, size, limit)
	}
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return nil, usage("the %s is empty; for an empty value use null", flag)
	}
	return data, nil
}

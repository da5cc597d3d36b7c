// Package change computes the changes that people request for tasks: retry, cancel, archive, restore, edit, purge and
// undo. It never decides the result of an attempt: holdfast.Settle makes every change of a state. The package has no
// I/O. The caller reads the task, and store.Audit refuses the change if the task has changed since.
package change

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/payload"
	"github.com/holdfastq/holdfast/store"
)

// events has the event of each action that changes the state of a task.
var events = map[store.Action]holdfast.Event{
	store.ActionRetry:   holdfast.EventRequeue,
	store.ActionCancel:  holdfast.EventCancel,
	store.ActionArchive: holdfast.EventArchive,
	store.ActionRestore: holdfast.EventRestore,
}

// Of returns the change that retries, cancels, archives, restores or purges a task. It returns an ErrConflict if the
// state of the task does not allow the action.
func Of(action store.Action, task holdfast.Task) (store.Change, error) {
	change := store.Change{Action: action, Task: task}
	if action == store.ActionPurge {
		if !task.State.Final() {
			return store.Change{}, fmt.Errorf("%w: cannot purge task %s: its state is %s; cancel it first", holdfast.ErrConflict, task.ID, task.State)
		}
		return change, nil
	}
	event, ok := events[action]
	if !ok {
		return store.Change{}, fmt.Errorf("%w: %q is not an action on one task", holdfast.ErrInvalid, action)
	}
	move, err := settle(task, holdfast.Requested(event))
	change.Move = &move
	return change, err
}

// settle settles the request of a person. Policy and deadline have no effect on requests, so it passes defaults. The
// store applies the change only if the task is still in the state that the person saw. Otherwise a retry of a dead task
// could revive a task that was cancelled in between.
func settle(task holdfast.Task, cause holdfast.Cause) (holdfast.Transition, error) {
	move, err := holdfast.Settle(task, cause, time.Time{}, holdfast.DefaultPolicy())
	if err == nil {
		move.From = []holdfast.State{task.State}
	}
	return move, err
}

// Allowed returns the states in which a person can apply the action to a task.
func Allowed(action store.Action) []holdfast.State {
	switch action {
	case store.ActionPurge:
		return []holdfast.State{holdfast.Done, holdfast.Dead, holdfast.Cancelled, holdfast.Archived}
	case store.ActionEdit:
		return []holdfast.State{holdfast.Ready, holdfast.Dead, holdfast.Cancelled, holdfast.Archived}
	}
	return holdfast.Moves()[events[action]].From
}

// Document is the editable part of a task. JSON Patches apply to it.
type Document struct {
	Payload     json.RawMessage   `json:"payload"`
	Queue       string            `json:"queue"`
	Priority    holdfast.Priority `json:"priority"`
	MaxAttempts int               `json:"max_attempts"` // 0: the worker's setting for the type applies
	RunAt       time.Time         `json:"run_at"`       // when a ready task becomes due
	Tags        []string          `json:"tags"`
}

// DocumentOf returns the document of a task.
func DocumentOf(task holdfast.Task) Document {
	payload := task.Payload
	if len(payload) == 0 {
		payload = json.RawMessage("null")
	}
	return Document{Payload: payload, Queue: task.Queue, Priority: task.Priority, MaxAttempts: task.MaxAttempts, RunAt: task.NextRunAt, Tags: append([]string{}, task.Tags...)}
}

const (
	// MaxPatchSteps is the maximum number of steps of a JSON Patch.
	MaxPatchSteps = 1000
	// maxPatchWork limits weight(patch) * len(document). A patch with this much work takes one or two seconds.
	maxPatchWork = 64 << 20
	// stepsAtOnce is the number of steps between two checks of the context and of the size of the document.
	stepsAtOnce = 16
)

// CheckPatch returns an ErrInvalid if the text is not a JSON Patch (RFC 6902), or has more than MaxPatchSteps steps.
func CheckPatch(patch []byte) error {
	_, err := decode(patch)
	return err
}

func decode(patch []byte) (jsonpatch.Patch, error) {
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("%w: the patch is not a JSON Patch (RFC 6902), such as [{\"op\":\"replace\",\"path\":\"/queue\",\"value\":\"mail\"}]: %w",
			holdfast.ErrInvalid, err)
	}
	if len(decoded) > MaxPatchSteps {
		return nil, fmt.Errorf("%w: the patch has %d steps, the limit is %d; split it into several patches", holdfast.ErrInvalid, len(decoded), MaxPatchSteps)
	}
	return decoded, nil
}

// weight returns an upper bound of how often a patch reads the whole document. The library decodes one level at a time.
// So a step reads the document once, and once more for each level of its paths and of the value in a test step.
func weight(patch jsonpatch.Patch) int {
	total := 0
	for _, step := range patch {
		path, _ := step.Path() // if the member is missing, ApplyWithOptions returns an error
		from, _ := step.From()
		total += 1 + strings.Count(path, "/") + strings.Count(from, "/")
		if value := step["value"]; value != nil && step.Kind() == "test" {
			total += holdfast.JSONDepth(*value)
		}
	}
	return total
}

// PatchWork estimates how many bytes Patch reads to apply a patch to a payload of the given size. It returns 0 if the
// text is not a JSON Patch.
func PatchWork(patch []byte, payload int) int {
	decoded, err := decode(patch)
	if err != nil {
		return 0
	}
	return len(patch) + weight(decoded)*payload
}

// Patch applies a JSON Patch to the document of a task. It returns an ErrInvalid if
//
//   - the patch does not apply, or its result is not a document,
//   - a chunk of its steps copies more than maxPayload bytes, or
//   - it has too many steps for the size of the document.
//
// It returns the error of ctx if ctx ends first.
func Patch(ctx context.Context, task holdfast.Task, patch []byte, maxPayload int) (Document, error) {
	decoded, err := decode(patch)
	if err != nil {
		return Document{}, err
	}
	text, err := encode(DocumentOf(task))
	if err != nil { // such as a time that JSON cannot represent
		return Document{}, fmt.Errorf("%w: task %s cannot be patched: %w", holdfast.ErrInvalid, task.ID, err)
	}
	room := maxPatchWork / max(1, weight(decoded))
	for steps := range slices.Chunk(decoded, stepsAtOnce) {
		if err := ctx.Err(); err != nil {
			return Document{}, err
		}
		if len(text) > room {
			return Document{}, fmt.Errorf("%w: the patch has %d steps, which are too many for the %d bytes of task %s; split it into several patches",
				holdfast.ErrInvalid, len(decoded), len(text), task.ID)
		}
		if text, err = apply(steps, text, maxPayload); err != nil {
			return Document{}, fmt.Errorf("%w: the patch does not fit task %s: %w", holdfast.ErrInvalid, task.ID, err)
		}
	}
	return ParseDocument(text)
}

// encode encodes a document without HTML escapes. They would change the characters of the payload, and with them the
// idempotency key of the task.
func encode(d Document) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(d)
	return text.Bytes(), err
}

// apply applies a patch. It recovers because the library panics on some patches. It limits the bytes copied because
// each step may copy the whole document, so that a short patch could make a document of any size.
func apply(patch jsonpatch.Patch, document []byte, maxCopied int) (patched []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("a step of the patch cannot be applied: %v", cause)
		}
	}()
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit, options.EscapeHTML = int64(maxCopied), false
	return patch.ApplyWithOptions(document, options)
}

// ParseDocument decodes a whole document. It returns an ErrInvalid if a member is missing, unknown or of another type.
func ParseDocument(text []byte) (Document, error) {
	var d struct {
		Payload     *json.RawMessage   `json:"payload"`
		Queue       *string            `json:"queue"`
		Priority    *holdfast.Priority `json:"priority"`
		MaxAttempts *int               `json:"max_attempts"`
		RunAt       *time.Time         `json:"run_at"`
		Tags        []string           `json:"tags"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return Document{}, fmt.Errorf("%w: the edited document: %w", holdfast.ErrInvalid, err)
	}
	if d.Queue == nil || d.Priority == nil || d.MaxAttempts == nil || d.RunAt == nil {
		return Document{}, fmt.Errorf("%w: the edited document must keep the members payload, queue, priority, max_attempts and run_at", holdfast.ErrInvalid)
	}
	payload := json.RawMessage("null") // encoding/json sets a pointer to nil for null
	if d.Payload != nil {
		payload = *d.Payload
	}
	return Document{Payload: payload, Queue: *d.Queue, Priority: *d.Priority, MaxAttempts: *d.MaxAttempts, RunAt: *d.RunAt, Tags: append([]string{}, d.Tags...)}, nil
}

// Validation selects whether Edit validates a new payload by the JSON Schema and the check function of its type.
type Validation bool

// The values of Validation.
const (
	Validate       Validation = false
	SkipValidation Validation = true // recorded in the audit log
)

// Rules limit an edit.
type Rules struct {
	MaxPayload int // in bytes
	// Schemas has the JSON Schema of the type, if the type has one; see store.Inspector.TypeSchemas.
	Schemas []store.TypeSchema
	// Check has the check functions of types that have one; see producer.Options.
	Check      map[string]func(payload []byte) error
	Validation Validation
}

// Edit returns the change that gives a task the values of a document. It returns an ErrInvalid if a value is not
// allowed, if a new payload does not fit the type, or if no value differs. It returns an ErrConflict if the state of
// the task does not allow the edit.
func Edit(task holdfast.Task, to Document, rules Rules) (store.Change, error) {
	if task.State == holdfast.Running || task.State == holdfast.Done {
		return store.Change{}, fmt.Errorf("%w: cannot edit task %s: its state is %s; only ready, dead, cancelled or archived tasks can be edited",
			holdfast.ErrConflict, task.ID, task.State)
	}
	from := DocumentOf(task)
	var edit store.Edit
	if !sameJSON(from.Payload, to.Payload) {
		edit.Payload = to.Payload
	}
	if to.Queue != from.Queue {
		edit.Queue = to.Queue
	}
	if to.Priority != from.Priority {
		edit.Priority = &to.Priority
	}
	if to.MaxAttempts != from.MaxAttempts {
		edit.MaxAttempts = orSetting(to.MaxAttempts)
	}
	if !to.RunAt.Equal(from.RunAt) {
		if task.State != holdfast.Ready {
			return store.Change{}, fmt.Errorf("%w: task %s is %s, and only a ready task has a time to run; retry it first", holdfast.ErrConflict, task.ID, task.State)
		}
		edit.RunAt = to.RunAt
	}
	if !slices.Equal(to.Tags, from.Tags) {
		edit.Tags = &to.Tags
	}
	checked := holdfast.NewTask{Type: task.Type, Payload: to.Payload, Queue: to.Queue, Priority: to.Priority, MaxAttempts: to.MaxAttempts, At: edit.RunAt, Tags: to.Tags}
	switch err := cmp.Or(holdfast.CheckTime("run_at", edit.RunAt), checked.Validate(rules.MaxPayload)); {
	case err != nil:
		return store.Change{}, err
	case to.Queue == "":
		return store.Change{}, fmt.Errorf("%w: the queue is empty", holdfast.ErrInvalid)
	case to.RunAt.IsZero():
		return store.Change{}, fmt.Errorf("%w: run_at must be in the years from 1970 to 9999", holdfast.ErrInvalid)
	case edit.Payload == nil && edit.Queue == "" && edit.Priority == nil && edit.MaxAttempts == 0 && edit.RunAt.IsZero() && edit.Tags == nil:
		return store.Change{}, fmt.Errorf("%w: the edit changes nothing", holdfast.ErrInvalid)
	}
	if edit.Payload != nil {
		edit.SkippedValidation = rules.Validation == SkipValidation
		if err := rules.checkPayload(task.Type, edit.Payload); err != nil {
			return store.Change{}, err
		}
	}
	return store.Change{Action: store.ActionEdit, Task: task, Edit: &edit}, nil
}

// checkPayload returns an ErrInvalid if the schema or the check of the type refuses the payload.
func (r *Rules) checkPayload(taskType string, text json.RawMessage) error {
	if r.Validation == SkipValidation {
		return nil
	}
	if i := slices.IndexFunc(r.Schemas, func(s store.TypeSchema) bool { return s.Type == taskType }); i >= 0 {
		if err := payload.Check(r.Schemas[i].Schema, text); err != nil {
			return holdfast.WithHint(fmt.Errorf("%w: invalid payload for type %s: %w", holdfast.ErrInvalid, taskType, err), holdfast.Hint{Kind: holdfast.HintSkipValidation})
		}
	}
	if check := r.Check[taskType]; check != nil {
		return check(text)
	}
	return nil
}

// orSetting returns a number of attempts for store.Edit, in which -1 selects the setting of the type.
func orSetting(attempts int) int {
	if attempts == 0 {
		return -1
	}
	return attempts
}

// sameJSON reports whether two texts are the same JSON apart from white space.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// Undo returns the change that reverses the last audit entry of a task: a retry before a worker has claimed the task,
// an archive, or an edit. It returns an ErrConflict if the task has changed since, or if the action cannot be undone.
func Undo(task holdfast.Task, last store.AuditEntry) (store.Change, error) {
	var was, is store.Version
	if err := json.Unmarshal(last.Before, &was); err != nil {
		return store.Change{}, fmt.Errorf("read audit entry %d: %w", last.ID, err)
	}
	if len(last.After) > 0 {
		if err := json.Unmarshal(last.After, &is); err != nil {
			return store.Change{}, fmt.Errorf("read audit entry %d: %w", last.ID, err)
		}
	}
	if task.State != is.State || task.Attempt != is.Attempt {
		return store.Change{}, fmt.Errorf("%w: cannot undo the %s of task %s: the task has changed since; it is now %s at attempt %d",
			holdfast.ErrConflict, last.Action, task.ID, task.State, task.Attempt)
	}
	change := store.Change{Action: store.ActionUndo, Task: task}
	var cause holdfast.Cause
	switch last.Action {
	case store.ActionEdit:
		edit := store.Edit{Payload: was.Payload, Key: was.Key, Queue: was.Queue, Priority: was.Priority, RunAt: was.RunAt, Tags: was.Tags}
		if was.MaxAttempts != is.MaxAttempts {
			edit.MaxAttempts = orSetting(was.MaxAttempts)
		}
		change.Edit = &edit
		return change, nil
	case store.ActionArchive:
		cause = holdfast.Requested(holdfast.EventRestore)
	case store.ActionRetry:
		cause = holdfast.Undone(was.Failures, was.Crashes, was.Deferrals)
		if was.State == holdfast.Cancelled {
			cause = holdfast.Requested(holdfast.EventCancel)
		}
	default:
		return store.Change{}, fmt.Errorf("%w: the last change of task %s was %q, which cannot be undone; only retry, archive and edit can",
			holdfast.ErrConflict, task.ID, last.Action)
	}
	move, err := settle(task, cause)
	if last.Action == store.ActionRetry { // including the retry of a cancelled task
		move.Failures, move.Crashes, move.Deferrals = was.Failures, was.Crashes, was.Deferrals
	}
	change.Move = &move
	return change, err
}

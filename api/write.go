package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// These parts of requests are exported, because the library sets only exported members.
type (
	// IDPath has the parameter of routes about a record with a number.
	IDPath struct {
		ID int64 `path:"id" minimum:"1" doc:"The id."`
	}

	// Conditional has the parameters of routes that change a record with an entity tag.
	Conditional struct {
		IfMatch string `header:"If-Match" doc:"Make the change only if what it changes still has this entity tag."`
		Reason  string `query:"reason" doc:"Why, for the audit log."`
	}

	// RawJSON has a body that the function decoded decodes.
	RawJSON struct {
		RawBody []byte `contentType:"application/json"`
	}
)

// idAction has the parameters of routes that change a record with a number and an entity tag.
type idAction struct {
	IDPath
	Conditional
}

// replacement has the parameters of routes whose body names the record, its new values and a reason.
type replacement struct {
	IfMatch string `header:"If-Match" doc:"Make the change only if what it changes still has this entity tag."`
	RawJSON
}

func (r *RawJSON) raw() []byte { return r.RawBody }

// decoded returns a handler that decodes the body of a request, and calls the given handler with it.
func decoded[P interface{ raw() []byte }, R, O any](handler func(context.Context, P, R) (O, error)) func(context.Context, P) (O, error) {
	return func(ctx context.Context, in P) (out O, err error) {
		var request R
		if p := decode(in.raw(), &request); p != nil {
			return out, p
		}
		return handler(ctx, in, request)
	}
}

// tagged is a response with the entity tag of the record in its body.
type tagged[T any] struct {
	ETag string `header:"ETag" doc:"The version of what the body describes. Send it as If-Match."`
	Body T
}

// withTag returns a response with an entity tag, and err.
func withTag[T any](tag string, out T, err error) (*tagged[T], error) {
	return &tagged[T]{tag, out}, err
}

// unchangedRecord returns a check that If-Match names the entity tag of a record. The check gets nil if there is no such
// record.
func unchangedRecord[R any](ifMatch, noun, name string, tag func(R) string) func(before *R) error {
	return func(before *R) error {
		if before == nil {
			return unchanged(ifMatch, "", "there is no such %s", noun)
		}
		return unchanged(ifMatch, tag(*before), "%s %s has changed: it now has", noun, name)
	}
}

// TaskTag returns the entity tag of a task. Every change by a person and every attempt changes the state, the number of
// the attempt, or the time when the task reached its final state. An archive and a restore leave a task as it was.
func TaskTag(task holdfast.Task) string {
	if task.FinishedAt.IsZero() {
		return fmt.Sprintf(`"%d-%s"`, task.Attempt, task.State)
	}
	return fmt.Sprintf(`"%d-%s-%x"`, task.Attempt, task.State, task.FinishedAt.UnixMicro())
}

// versionTag returns the entity tag of a record whose version increases with each change by a person.
func versionTag(version int64) string { return fmt.Sprintf(`"%d"`, version) }

// unchanged returns a problem if If-Match does not name tag, the entity tag of the record that a request would change.
// An empty tag means that there is no such record. format and args begin the text of the problem.
func unchanged(ifMatch, tag, format string, args ...any) error {
	if ifMatch == "" {
		return nil
	}
	if tag != "" {
		for allowed := range strings.SplitSeq(ifMatch, ",") {
			if allowed = strings.TrimSpace(allowed); allowed == "*" || allowed == tag {
				return nil
			}
		}
		format += " the entity tag %s"
		args = append(args, tag)
	}
	return changed(format, args...)
}

// changed returns the problem that If-Match names another version.
func changed(format string, args ...any) *Problem {
	return newProblem(http.StatusPreconditionFailed, "changed", format, args...).
		hint("get it again, and repeat the request with its new ETag if the change is still wanted")
}

// TaskAction has the parameters of routes that change one task; see TaskPath.
type TaskAction struct {
	TaskPath
	Conditional
}

// check returns a problem if If-Match does not name the entity tag of the task.
func (in *TaskAction) check(task holdfast.Task) error {
	return unchanged(in.IfMatch, TaskTag(task), "task %s has changed: it is now %s at attempt %d, with", task.ID, task.State, task.Attempt)
}

// act returns a handler that applies an action to a task.
func (a *API) act(what store.Action) func(context.Context, *TaskAction) (*tagged[surface.TaskState], error) {
	return ofTask(func(ctx context.Context, in *TaskAction, id holdfast.TaskID) (*tagged[surface.TaskState], error) {
		task, err := a.b.Act(ctx, actor(ctx, in.Reason), id, what, in.check)
		return withTag(TaskTag(task), surface.TaskState{ID: task.ID, State: task.State}, err)
	})
}

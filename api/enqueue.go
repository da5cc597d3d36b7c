package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// maxTasks is the maximum number of tasks in a request.
const maxTasks = 1000

// Enqueued is the result for one task of a request.
type Enqueued struct {
	ID        holdfast.TaskID `json:"id"`
	Duplicate bool            `json:"duplicate" doc:"A task with the same unique key exists; nothing was stored, and id is that task."`
	State     holdfast.State  `json:"state,omitempty" doc:"The state of the task that has the unique key. Absent if that task was deleted and its key is kept."`
}

// EnqueuedTasks is the response body for an array of tasks.
type EnqueuedTasks struct {
	Tasks []Enqueued `json:"tasks" doc:"One for each task of the request, in the same order."`
}

// enqueueInput is a request to store tasks.
type enqueueInput struct {
	Key     string `header:"Idempotency-Key" maxLength:"255" doc:"The request is carried out once for each key; the answer is repeated for 24 hours."`
	RawBody []byte `contentType:"application/json"`
}

// enqueueOutput is the response to an enqueueInput.
type enqueueOutput struct {
	Status   int
	Replayed string `header:"Idempotent-Replayed" doc:"true if the answer is that of an earlier request with the same key."`
	Body     any
}

// enqueueRoute registers the route that stores tasks. Its handler parses the body, so that payloads stay as they are.
func (a *API) enqueueRoute(described huma.API, op huma.Operation) {
	schemas := described.OpenAPI().Components.Schemas
	result := &huma.Schema{OneOf: []*huma.Schema{
		schemas.Schema(typeOf[Enqueued](), true, "Enqueued"), schemas.Schema(typeOf[EnqueuedTasks](), true, "EnqueuedTasks"),
	}}
	for status, text := range map[string]string{"200": "Every task is a duplicate.", "201": "The tasks are stored, apart from duplicates."} {
		op.Responses[status] = response(text, jsonType, result)
	}
	handle(a, a.enqueue)(described, op)
}

// newTasks describes the body of enqueueRoute: one task or an array. The schema has a name, because some generators can
// send only an alternative that has one.
func newTasks() *requestBody {
	return &requestBody{schema: func(r huma.Registry) *huma.Schema {
		task := r.Schema(typeOf[surface.NewTask](), true, "NewTask")
		r.Map()["NewTasks"] = &huma.Schema{OneOf: []*huma.Schema{task, {Type: huma.TypeArray, Items: task, MinItems: new(1), MaxItems: new(maxTasks)}}}
		return &huma.Schema{Ref: "#/components/schemas/NewTasks"}
	}}
}

func (a *API) enqueue(ctx context.Context, in *enqueueInput) (*enqueueOutput, error) {
	tasks, single, err := a.tasksOf(in.RawBody)
	if err != nil {
		return nil, err
	}
	if in.Key != "" {
		return a.enqueueOnce(ctx, in, tasks, single)
	}
	results, err := a.producer.EnqueueMany(ctx, tasks)
	switch {
	case err != nil && len(tasks) == 1:
		return nil, onlyCause(err)
	case err != nil:
		return nil, a.partly(enqueued(results), err)
	}
	return answerTo(results, single), nil
}

func enqueued(results []producer.Result) []Enqueued {
	return surface.Each(results, func(r producer.Result) Enqueued { return Enqueued(r) })
}

// answerTo returns the response to a request whose tasks are in the store.
func answerTo(results []producer.Result, single bool) *enqueueOutput {
	out := &enqueueOutput{Status: http.StatusOK}
	if slices.ContainsFunc(results, func(r producer.Result) bool { return !r.Duplicate }) {
		out.Status = http.StatusCreated
	}
	if stored := enqueued(results); single {
		out.Body = stored[0]
	} else {
		out.Body = EnqueuedTasks{stored}
	}
	return out
}

// enqueueOnce stores the tasks and the answer in one transaction, so that a client can repeat the request after any
// failure.
func (a *API) enqueueOnce(ctx context.Context, in *enqueueInput, tasks []holdfast.NewTask, single bool) (*enqueueOutput, error) {
	sum := sha256.Sum256(in.RawBody)
	request := store.Request{Scope: callerOf(ctx).Scope, Key: in.Key, Hash: hex.EncodeToString(sum[:])}
	answer, err := a.b.Store.Once(ctx, request, func(ctx context.Context, tx store.Tx) (store.Answer, error) {
		results, err := a.producer.EnqueueTx(ctx, tx, tasks...)
		if err != nil {
			return store.Answer{}, onlyCause(err)
		}
		out := answerTo(results, single)
		var text strings.Builder
		err = surface.WriteJSON(&text, out.Body)
		return store.Answer{Status: out.Status, Body: text.String()}, err
	})
	if err != nil {
		return nil, err
	}
	out := &enqueueOutput{Status: answer.Status, Body: json.RawMessage(answer.Body)}
	if answer.Stored {
		out.Replayed = "true"
		if answer.Hash != request.Hash {
			return nil, newProblem(http.StatusUnprocessableEntity, "key_reused", "another request was sent with the Idempotency-Key %q", in.Key).
				hint("send each request with a key of its own; repeat a request only with the same body")
		}
	}
	return out, nil
}

// onlyCause returns the cause of a producer.TaskError, without the index of the task. It returns other errors as they
// are.
func onlyCause(err error) error {
	if one, ok := errors.AsType[*producer.TaskError](err); ok {
		return one.Err
	}
	return err
}

// tasksOf returns the valid tasks of a request body. single reports whether the body is one task and not an array.
func (a *API) tasksOf(text []byte) (tasks []holdfast.NewTask, single bool, err error) {
	text = bytes.TrimSpace(text)
	parts := []json.RawMessage{text}
	if single = len(text) == 0 || text[0] != '['; !single {
		if err := json.Unmarshal(text, &parts); err != nil {
			return nil, false, newProblem(http.StatusBadRequest, invalidBody, "not valid JSON: %s", err)
		}
	}
	switch {
	case len(text) == 0 || len(parts) == 0:
		return nil, false, newProblem(http.StatusUnprocessableEntity, invalidBody, "the body has no task")
	case len(parts) > maxTasks:
		return nil, false, newProblem(http.StatusUnprocessableEntity, invalidBody, "the body has %d tasks, the limit is %d", len(parts), maxTasks).
			hint("split the tasks into several requests")
	}
	tasks, p := a.parseTasks(parts, a.b.CheckTask)
	switch {
	case p == nil:
		return tasks, single, nil
	case single:
		p.Detail, p.Hint, p.Errors = p.Errors[0].Detail, p.Errors[0].Hint, nil
	}
	return nil, single, p
}

// parseTasks parses tasks and checks them. It returns a problem with an error for each invalid task.
func (a *API) parseTasks(parts []json.RawMessage, check func(holdfast.NewTask) error) ([]holdfast.NewTask, *Problem) {
	tasks := make([]holdfast.NewTask, len(parts))
	p := newProblem(http.StatusUnprocessableEntity, "invalid_task", "nothing was stored")
	for i, part := range parts {
		var err error
		if tasks[i], err = surface.ParseTask(part, holdfast.NewTask{}); err == nil {
			err = check(tasks[i])
		}
		if err != nil {
			p.Errors = append(p.Errors, a.taskProblem(i, err))
		}
	}
	if len(p.Errors) == 0 {
		return tasks, nil
	}
	p.Detail = fmt.Sprintf("%d of %d tasks are invalid; nothing was stored", len(p.Errors), len(parts))
	return nil, p
}

func (a *API) taskProblem(i int, err error) TaskProblem {
	return TaskProblem{Index: i, Detail: withoutSentinel(err), Hint: a.o.Hint(holdfast.HintOf(err))}
}

// partly returns the problem for a request if the store has stored some of its tasks and refused the others.
func (a *API) partly(stored []Enqueued, err error) *Problem {
	p := a.problemOf(err)
	refused, ok := errors.AsType[producer.TaskErrors](err)
	if !ok {
		return p
	}
	p.Code, p.Hint = "partly_stored", "send the tasks with errors again"
	p.Detail = fmt.Sprintf("the store refused %d tasks; the others are stored", len(refused))
	for i := range stored {
		p.Tasks = append(p.Tasks, &stored[i])
	}
	for _, one := range refused {
		p.Errors = append(p.Errors, a.taskProblem(one.Index, one.Err))
		if one.Index < len(p.Tasks) {
			p.Tasks[one.Index] = nil
		}
	}
	return p
}

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// taggedBatch is a batch with its entity tag.
type taggedBatch struct {
	surface.Batch
	ETag string `json:"etag" doc:"The version of the batch. Send it as If-Match."`
}

// batchPage is a page of batches.
type batchPage struct {
	Batches []taggedBatch     `json:"batches"`
	Next    *holdfast.BatchID `json:"next" doc:"The cursor of the next page, and null on the last page."`
}

func (a *API) listBatches(ctx context.Context, in *surface.BatchQuery) (batchPage, error) {
	found, next, err := surface.ListBatches(ctx, a.b, *in)
	return batchPage{surface.Each(found, func(l surface.Listed[surface.Batch, app.Batch]) taggedBatch {
		return taggedBatch{l.Form, batchTag(l.From)}
	}), next}, err
}

// batchTag returns the entity tag of a batch. Each change by a person, a stop and the end of the batch change the tag.
// Subtasks that are stored or end do not change the tag: otherwise they would make the requests of people fail.
func batchTag(b app.Batch) string {
	p := b.Progress
	sealed := p.Sealed && p.Stage == 0 && len(b.Spec.Stages) > 0 && b.Spec.Stages[0].Open
	return contentTag(store.ID(b.ID), b.State, p.Cancelling, p.Accepted, sealed)
}

// batchAction has the parameters of routes that change one batch.
type batchAction struct {
	IDPath
	Conditional
}

func (in *IDPath) batch() holdfast.BatchID { return holdfast.BatchID(in.ID) }

// unchanged returns the check of If-Match.
func (in *batchAction) unchanged() func(*app.Batch) error {
	return unchangedRecord(in.IfMatch, "batch", in.batch().String(), batchTag)
}

// startBatchRoute registers the route that starts batches.
func (a *API) startBatchRoute(described huma.API, op huma.Operation) {
	schemas := described.OpenAPI().Components.Schemas
	op.Responses["200"] = response("A batch with the name has not ended; this is it, and nothing was started.", jsonType,
		schemas.Schema(typeOf[surface.Batch](), true, "Batch"))
	handle(a, decoded(a.startBatch))(described, op)
}

func (a *API) startBatch(ctx context.Context, _ *RawJSON, r surface.NewBatch) (*created[surface.Batch], error) {
	form, started, isNew, err := surface.StartBatch(ctx, a.b, actor(ctx, r.Reason), r)
	if err != nil {
		return nil, err
	}
	out := newCreated(fmt.Sprintf("/batches/%s", started.ID), batchTag(started), form)
	if !isNew {
		out.Status = http.StatusOK
	}
	return out, nil
}

func (a *API) getBatch(ctx context.Context, in *IDPath) (*tagged[surface.Batch], error) {
	form, b, err := surface.GetBatch(ctx, a.b, in.batch())
	return withTag(batchTag(b), form, err)
}

// changeBatch returns a handler that changes a batch.
func (a *API) changeBatch(change surface.BatchChange) func(context.Context, *batchAction) (*tagged[surface.Batch], error) {
	return func(ctx context.Context, in *batchAction) (*tagged[surface.Batch], error) {
		_, b, err := change(ctx, actor(ctx, in.Reason), in.batch(), in.unchanged())
		if err != nil {
			return nil, err
		}
		return withTag(batchTag(b), surface.BatchOf(b), nil)
	}
}

// operateBatch returns a handler that starts an operation on the tasks of a batch.
func (a *API) operateBatch(start func(
	ctx context.Context, b *app.Backend, by store.Actor, id holdfast.BatchID, checks ...func(*app.Batch) error,
) (surface.BatchOperation, app.Batch, error)) func(context.Context, *batchAction) (*tagged[surface.BatchOperation], error) {
	return func(ctx context.Context, in *batchAction) (*tagged[surface.BatchOperation], error) {
		started, b, err := start(ctx, a.b, actor(ctx, in.Reason), in.batch(), in.unchanged())
		return withTag(batchTag(b), started, err)
	}
}

// pushedPage has the parameters of the route that stores a page of subtasks.
type pushedPage struct {
	IDPath
	Number int `path:"number" minimum:"0" doc:"How many pages the batch got before this one. A page that is stored already changes nothing."`
	RawJSON
}

// newSubtasks is the body of the route that stores a page of subtasks.
type newSubtasks struct {
	Subtasks []json.RawMessage `json:"subtasks"`
}

// pageOfSubtasks describes the body of the route that stores a page of subtasks.
func pageOfSubtasks() *requestBody {
	return &requestBody{schema: func(r huma.Registry) *huma.Schema {
		task := r.Schema(typeOf[surface.NewTask](), true, "NewTask")
		return &huma.Schema{Type: huma.TypeObject, Required: []string{"subtasks"}, Properties: map[string]*huma.Schema{
			"subtasks": {Type: huma.TypeArray, Items: task, MaxItems: new(maxTasks)},
		}}
	}}
}

func (a *API) pushBatch(ctx context.Context, in *pushedPage, r newSubtasks) (surface.PushedPage, error) {
	tasks, p := a.parseTasks(r.Subtasks, func(task holdfast.NewTask) error {
		_, err := a.b.CompleteTask(task)
		return err
	})
	if p != nil {
		return surface.PushedPage{}, p
	}
	page, err := surface.PushBatch(ctx, a.b, in.batch(), in.Number, tasks)
	if errors.Is(err, holdfast.ErrConflict) {
		if b, readErr := a.b.Batch(ctx, in.batch()); readErr == nil && in.Number > b.Progress.Pages && !b.Progress.Sealed {
			return page, newProblem(http.StatusConflict, "page_too_early", "page %d was sent before page %d", in.Number, b.Progress.Pages).
				hint(fmt.Sprintf("send the page %d next", b.Progress.Pages))
		}
	}
	return page, err
}

// batchResultPath has the parameters of the route that lists results.
type batchResultPath struct {
	IDPath
	surface.BatchResultQuery
}

func (a *API) listBatchResults(ctx context.Context, in *batchResultPath) (surface.BatchResultPage, error) {
	return surface.BatchResults(ctx, a.b, in.batch(), in.BatchResultQuery)
}

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// taggedSchedule is a schedule with its entity tag.
type taggedSchedule struct {
	surface.Schedule
	ETag string `json:"etag" doc:"The version of the schedule. Send it as If-Match."`
}

// schedulePage is a page of schedules.
type schedulePage struct {
	Schedules []taggedSchedule `json:"schedules"`
	Next      *string          `json:"next" doc:"The cursor of the next page, and null on the last page."`
}

func (a *API) listSchedules(ctx context.Context, in *surface.ScheduleQuery) (schedulePage, error) {
	found, next, err := surface.ListSchedules(ctx, a.b, *in)
	return schedulePage{surface.Each(found, func(l surface.Listed[surface.Schedule, app.Schedule]) taggedSchedule {
		return taggedSchedule{l.Form, ScheduleTag(l.From)}
	}), next}, err
}

// ScheduleTag returns the entity tag of a schedule. Each change by a person and each pause changes the tag. A run does
// not change the tag: otherwise it would make the request of a person fail.
func ScheduleTag(s app.Schedule) string {
	_, created := s.Creator()
	return contentTag(store.ID(created.UnixMicro()), s.State, s.Spec)
}

// SchedulePath has the parameter of routes about one schedule.
type SchedulePath struct {
	Name string `path:"name" doc:"The name of the schedule or the backfill."`
}

// scheduleAction has the parameters of routes that change one schedule.
type scheduleAction struct {
	SchedulePath
	Conditional
}

// unchanged returns the check of If-Match.
func (in *scheduleAction) unchanged() func(*app.Schedule) error {
	return unchangedRecord(in.IfMatch, "schedule", in.Name, ScheduleTag)
}

// created is the response to a request that creates a schedule or a backfill.
type created[T any] struct {
	Status   int
	Location string `header:"Location" doc:"The new record."`
	ETag     string `header:"ETag" doc:"The version of the new record. Send it as If-Match."`
	Body     T
}

// newCreated returns the response after a record was stored. path is below Prefix.
func newCreated[T any](path, tag string, body T) *created[T] {
	return &created[T]{http.StatusCreated, Prefix + path, tag, body}
}

// newCreatedSchedule returns the response after a schedule was stored.
func newCreatedSchedule[T any](s app.Schedule, body T) *created[T] {
	return newCreated("/schedules/"+s.Name, ScheduleTag(s), body)
}

// createScheduleRoute registers the route that creates schedules.
func (a *API) createScheduleRoute(described huma.API, op huma.Operation) {
	schemas := described.OpenAPI().Components.Schemas
	op.Responses["200"] = response("The schedule of a dry run.", jsonType, schemas.Schema(typeOf[surface.ScheduleDetails](), true, "ScheduleDetails"))
	handle(a, decoded(a.createSchedule))(described, op)
}

func (a *API) createSchedule(ctx context.Context, _ *RawJSON, r surface.NewSchedule) (*created[surface.ScheduleDetails], error) {
	d, s, err := surface.CreateSchedule(ctx, a.b, actor(ctx, r.Reason), r, nil)
	if err != nil || r.DryRun {
		return &created[surface.ScheduleDetails]{Status: http.StatusOK, Body: d}, err
	}
	return newCreatedSchedule(s, d), nil
}

func (a *API) getSchedule(ctx context.Context, in *SchedulePath) (*tagged[surface.ScheduleDetails], error) {
	d, s, err := surface.GetSchedule(ctx, a.b, in.Name)
	return withTag(ScheduleTag(s), d, err)
}

// scheduleEdit has the parameters of the route that edits a schedule. Its body has the reason.
type scheduleEdit struct {
	SchedulePath
	IfMatch string `header:"If-Match" doc:"Make the change only if what it changes still has this entity tag."`
	RawJSON
}

func (a *API) editSchedule(ctx context.Context, in *scheduleEdit, r surface.ScheduleEdit) (*tagged[surface.ScheduleDetails], error) {
	d, s, err := surface.EditSchedule(ctx, a.b, actor(ctx, r.Reason), in.Name, r, unchangedRecord(in.IfMatch, "schedule", in.Name, ScheduleTag), nil)
	return withTag(ScheduleTag(s), d, err)
}

// changeSchedule returns a handler that applies a change to a schedule.
func (a *API) changeSchedule(
	change func(ctx context.Context, by store.Actor, name string, checks ...func(*app.Schedule) error) (before *app.Schedule, after app.Schedule, err error),
) func(context.Context, *scheduleAction) (*tagged[surface.Schedule], error) {
	return func(ctx context.Context, in *scheduleAction) (*tagged[surface.Schedule], error) {
		_, s, err := change(ctx, actor(ctx, in.Reason), in.Name, in.unchanged())
		return withTag(ScheduleTag(s), surface.ScheduleOf(s), err)
	}
}

func (a *API) runSchedule(ctx context.Context, in *scheduleAction) (surface.RunNow, error) {
	return surface.RunSchedule(ctx, a.b, actor(ctx, in.Reason), in.Name, in.unchanged())
}

// backfill has the parameters of the route that starts a backfill. Its body has the reason.
type backfill struct {
	SchedulePath
	RawJSON
}

func (a *API) backfillSchedule(ctx context.Context, in *backfill, r surface.Backfill) (*created[surface.Backfilled], error) {
	started, s, err := surface.BackfillSchedule(ctx, a.b, actor(ctx, r.Reason), in.Name, r)
	return newCreatedSchedule(s, started), err
}

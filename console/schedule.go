package console

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	plans "github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// schedules is the view of the schedules and the sources.
type schedules struct {
	Now       time.Time
	Schedules []surface.Schedule
	Sources   []surface.Source
	Jobs      []surface.ShardJob
}

func (c *Console) schedules(ctx context.Context, _ *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	v := schedules{Now: now}
	found, err := c.b.Schedules(ctx, "", planLimit)
	if err != nil {
		return nil, err
	}
	v.Schedules = surface.Each(found, surface.ScheduleOf)
	sources, err := c.b.Sources(ctx, "", planLimit)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		v.Sources = append(v.Sources, surface.SourceOf(s, now))
	}
	jobs, err := c.b.ShardJobs(ctx, "", planLimit)
	v.Jobs = surface.Each(jobs, surface.ShardJobOf)
	return v, err
}

// planLimit is the maximum number of schedules, of sources and of shard jobs on their page.
const planLimit = 200

// historyLimit is the number of audit entries on the page of a setting, a schedule, a source or a shard job.
const historyLimit = 20

// history returns the newest changes of a plan.
func (c *Console) history(ctx context.Context, kind store.PlanKind, name string) ([]surface.AuditEntry, error) {
	entries, err := c.b.Store.AuditLog(ctx, store.AuditFilter{Subject: store.PlanSubject(kind, name), Limit: historyLimit})
	return surface.Each(entries, surface.AuditEntryOf), err
}

// schedule is the view of one schedule or backfill.
type schedule struct {
	Now time.Time
	surface.ScheduleDetails
	Tag       string
	Zone      *time.Location
	DueAt     time.Time // when the next task is stored, with its jitter
	Body      *node     // the payload of its tasks
	Last      []scheduleRun
	Backfills []surface.Schedule
	History   []surface.AuditEntry
}

// scheduleRun is one of the last runs of a schedule.
type scheduleRun struct {
	At   time.Time
	ID   holdfast.TaskID
	Task *surface.ListedTask // nil if the store does not have it any more
}

// Due returns when the next task is stored, in the zone of the schedule; the zero time if it has no jitter.
func (s *schedule) Due() time.Time {
	if s.Jitter == 0 || s.DueAt.IsZero() {
		return time.Time{}
	}
	return s.DueAt.In(s.Zone)
}

func (c *Console) schedule(ctx context.Context, r *request) (any, error) {
	name := r.PathValue("name")
	if err := plans.CheckName(name); err != nil {
		return nil, err
	}
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	details, stored, err := surface.GetSchedule(ctx, c.b, name)
	if err != nil {
		return nil, err
	}
	v := &schedule{Now: now, ScheduleDetails: details, Tag: api.ScheduleTag(stored), Zone: time.UTC, DueAt: stored.DueAt()}
	if len(details.Next) > 0 {
		v.Zone = details.Next[0].Location()
	}
	if len(details.Task.Payload) > 0 {
		v.Body = nodeOf(details.Task.Payload)
	}
	if v.Last, err = c.lastRuns(ctx, details.Recent, v.Zone); err != nil {
		return nil, err
	}
	if details.BackfillOf == "" {
		found, err := c.b.Schedules(ctx, "", planLimit)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if s.Spec.BackfillOf == name {
				v.Backfills = append(v.Backfills, surface.ScheduleOf(s))
			}
		}
	}
	v.History, err = c.history(ctx, store.ScheduleKind, name)
	return v, err
}

// lastRuns returns runs with their tasks.
func (c *Console) lastRuns(ctx context.Context, runs []surface.ScheduleRun, zone *time.Location) ([]scheduleRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	page, err := surface.List(ctx, c.b, store.Filter{IDs: surface.Each(runs, func(r surface.ScheduleRun) holdfast.TaskID { return r.Task })})
	if err != nil {
		return nil, err
	}
	return surface.Each(runs, func(r surface.ScheduleRun) scheduleRun {
		run := scheduleRun{At: r.At.In(zone), ID: r.Task}
		if i := slices.IndexFunc(page.Tasks, func(t surface.ListedTask) bool { return t.ID == r.Task }); i >= 0 {
			run.Task = &page.Tasks[i]
		}
		return run
	}), nil
}

// source is the view of one source or backfill.
type source struct {
	Now time.Time
	surface.Source
	Tag       string
	Default   bool   // the source whose settings the others share; it has no slices
	Key       string // of its tasks
	Slices    []surface.Slice
	Next      string // where the next page of slices begins; "" on the last one
	Pause     *store.Gate
	Backfills []surface.Source
	History   []surface.AuditEntry
	Retries   []formField // the form with the timeout and the retries that the source sets itself
}

// retryFields returns the fields of the form with the timeout and the retries of a source, with its own values.
func retryFields(own plans.Source) []formField {
	text := func(d *plans.Duration) string {
		if d == nil {
			return ""
		}
		return time.Duration(*d).String()
	}
	attempts := ""
	if own.Attempts != nil {
		attempts = strconv.Itoa(*own.Attempts)
	}
	strategies := []string{"", string(holdfast.Exponential), string(holdfast.Linear), string(holdfast.Fixed)}
	return []formField{
		{Name: "max_attempts", Label: "Max attempts", Example: "10", Kind: "number", Value: attempts},
		{Name: "timeout", Label: "Timeout", Example: "30s", Value: text(own.Timeout)},
		{Name: "retry_strategy", Label: "Retry strategy", Options: strategies, Value: string(own.RetryStrategy)},
		{Name: "retry_base", Label: "Retry base", Example: "1m", Value: text(own.RetryBase)},
		{Name: "retry_max", Label: "Retry max", Example: "1h", Value: text(own.RetryMax)},
	}
}

// Shared reports whether a setting is that of the source default.
func (s *source) Shared(setting string) bool { return !s.Default && !slices.Contains(s.Own, setting) }

// Begin returns where the first slice begins, for people.
func (s *source) Begin() string {
	if ago, err := time.ParseDuration(s.Start); err == nil {
		return duration(-ago) + " before the source was created"
	}
	return s.Start
}

func (c *Console) source(ctx context.Context, r *request) (any, error) {
	name := r.PathValue("name")
	if err := plans.CheckName(name); err != nil {
		return nil, err
	}
	form, stored, err := surface.GetSource(ctx, c.b, name)
	if err != nil {
		return nil, err
	}
	v := &source{Source: form, Tag: api.SourceTag(stored), Default: name == plans.DefaultSource, Key: cmp.Or(form.BackfillOf, name), Retries: retryFields(stored.Spec)}
	if v.Now, err = c.b.Store.Now(ctx); err != nil {
		return nil, err
	}
	if !v.Default {
		if err := c.findSlices(ctx, r, v); err != nil {
			return nil, err
		}
	}
	v.History, err = c.history(ctx, store.SourceKind, name)
	return v, err
}

// findSlices sets the slices of a source, the pause of its key, and its backfills.
func (c *Console) findSlices(ctx context.Context, r *request, v *source) error {
	query := surface.SliceQuery{Source: v.Name, Limit: taskLimit, After: r.q("after")}
	if query.Check() != nil {
		query.After = ""
	}
	found, next, err := surface.ListSlices(ctx, c.b, query)
	if err != nil {
		return err
	}
	if v.Slices = found; next != nil {
		v.Next = *next
	}
	gates, err := c.b.Store.Gates(ctx)
	if err != nil {
		return err
	}
	for i := range gates {
		if gates[i].Subject == (store.Subject{Key: v.Key}) {
			v.Pause = &gates[i]
		}
	}
	if v.BackfillOf != "" {
		return nil
	}
	sources, err := c.b.Sources(ctx, "", planLimit)
	for _, s := range sources {
		if s.Spec.BackfillOf == v.Name {
			v.Backfills = append(v.Backfills, surface.SourceOf(s, v.Now))
		}
	}
	return err
}

// shardJob is the view of one shard job.
type shardJob struct {
	Now time.Time
	surface.ShardJob
	Tag     string
	MapTag  string // of the shard map
	Owned   []surface.OwnedShard
	More    int             // how many shards are left out
	Workers map[string]int  // how many live workers take the queue of a zone
	Drained map[string]bool // the zones that cannot be drained
	History []surface.AuditEntry
}

// shardLimit is the number of shards that the page of a shard job shows.
const shardLimit = 500

func (c *Console) shardJob(ctx context.Context, r *request) (any, error) {
	name := r.PathValue("name")
	if err := plans.CheckName(name); err != nil {
		return nil, err
	}
	form, stored, err := surface.GetShardJob(ctx, c.b, name)
	if err != nil {
		return nil, err
	}
	owned, _, err := surface.GetShardMap(ctx, c.b, name)
	if err != nil {
		return nil, err
	}
	v := &shardJob{ShardJob: form, Tag: api.ShardJobTag(stored), MapTag: api.ShardMapTag(stored), Workers: make(map[string]int), Drained: make(map[string]bool)}
	v.Owned = owned.Shards[:min(len(owned.Shards), shardLimit)]
	v.More = len(owned.Shards) - len(v.Owned)
	if v.Now, err = c.b.Store.Now(ctx); err != nil {
		return nil, err
	}
	workers, err := c.b.Store.Workers(ctx, false)
	if err != nil {
		return nil, err
	}
	owners := 0
	for _, z := range form.Zones {
		for _, w := range workers {
			if !w.Draining && (len(w.Queues) == 0 || slices.Contains(w.Queues, z.Zone)) {
				v.Workers[z.Zone]++
			}
		}
		if z.Shards > 0 {
			owners++
		}
	}
	for _, z := range form.Zones {
		v.Drained[z.Zone] = z.Shards == 0 || owners < 2
	}
	v.History, err = c.history(ctx, store.ShardKind, name)
	return v, err
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type shardCommands struct{ *tool }

func (t shardCommands) command() *cli.Command {
	return noun("shard shards", "run jobs over data whose shards belong to zones, and move shards between zones",
		noun("job jobs", "set, show and delete shard jobs",
			t.verb("set JOB", "create a shard job, or change it while workers run",
				`A shard job handles data that is divided into shards. Each shard belongs to a zone, which is the name of a queue. In
each zone, one pass after another runs as a task in that queue, and handles the shards of the zone. A pass saves an
offset: how far its shards are done. While a janitor runs, it stores the next pass of each zone.

Values without a flag stay. A new job needs --type, and --map or --file. The map is a list such as 0=a,1=a,2=b, or a
JSON object with the zone of each shard. It replaces the map of a job: shards keep their offsets, and new ones begin at
0. If the map lacks a shard with an offset, the command changes nothing unless --drop-offsets is given.

After a change of the map, passes that run end within about a second, and cannot save an offset any more. The next pass
of each zone sees the new map and begins at the lowest offset of its shards.

Example:
  holdfast shard job set scan --type scan-orders --every 30s --map 0=berlin,1=oslo,2=oslo
  echo '{"0":"berlin","1":"berlin","2":"oslo"}' | holdfast shard job set scan --file - --reason "a new machine"`,
				changes(t.tool, openNewStore, t.set), outputFlag()),
			t.verb("list", "list the shard jobs by name",
				`SHARDS and ZONES are how many shards the job has, and how many zones they belong to. OPEN is the number of passes
that are ready or run. MAP is the version of the shard map.

Example:
  holdfast shard job list --watch`,
				lists(t.tool, "shard_jobs", "there is no shard job", "there are more shard jobs; for the next page, add --after %s",
					t.columns(), surface.ListShardJobs), outputFlag(), sortFlag(), watchFlag()),
			t.verb("get JOB", "show a shard job with the passes and the offsets of its zones",
				`A line of the table is a zone. OFFSET is the lowest offset of its shards, with which its next pass begins. PASS is
the task of its newest pass, and NEXT the earliest begin of the next one.

Example:
  holdfast shard job get scan --watch`,
				gets(t.tool, seeShardJobs, surface.GetShardJob, t.describe), outputFlag(), watchFlag()),
			t.verb("delete JOB", "delete a shard job with its offsets",
				`Running passes end within about a second, and the tasks stay. A new job with the same name begins at the offset 0.
To keep a record of the offsets, run this first: holdfast shard map get JOB -o json

Example:
  holdfast shard job delete scan`,
				alters(t.tool, seeShardJobs, "shard job %s is deleted; passes that run end within about a second", "",
					(*app.Backend).DeleteShardJob, surface.ShardJobOf), outputFlag()),
		),
		noun("map maps", "show the shard map of a job: the zone of each shard",
			t.verb("get JOB", "show the zone and the offset of each shard",
				`Everything up to the offset is done in the shard.

Example:
  holdfast shard map get scan -o json`,
				gets(t.tool, seeShardJobs, surface.GetShardMap, t.describeMap), outputFlag(), watchFlag()),
		),
		t.verb("move JOB SHARD", "move a shard with its offset to another zone",
			`Passes that run end as after "shard job set --map". The zone may be one that has no shards yet.

Example:
  holdfast shard move scan 1 --to berlin`,
			changes(t.tool, openCheckedStore, t.move), outputFlag()),
		t.verb("drain JOB ZONE", "move the shards of a zone with their offsets to the other zones of the job",
			`Each shard goes to the zone that has the fewest shards then. Passes that run end as after "shard job set --map". The zone
has no passes any more, until a shard is moved to it.

Example:
  holdfast shard drain scan oslo --reason "maintenance"`,
			changes(t.tool, openCheckedStore, t.drain), outputFlag()),
	)
}

// seeShardJobs is the hint if there is no shard job.
const seeShardJobs = "see: holdfast shard job list"

// zones returns the shard map of the flags, or nil if there is none.
func (t shardCommands) zones(r setShardJob) (zones surface.ZoneMap, err error) {
	switch {
	case r.File != "" && len(r.Map) > 0:
		return nil, usage("give --file or --map, and not both")
	case len(r.Map) > 0:
		return surface.ParseZones(r.Map)
	case r.File == "":
		return nil, nil
	}
	const most = 16 << 20 // bytes; far more than the largest map has
	from := t.stdin
	if r.File != "-" {
		file, err := os.Open(r.File)
		if err != nil {
			return nil, usage("--file: %w", err)
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, most))
	if err == nil {
		err = zones.UnmarshalJSON(text)
	}
	if err == nil && len(zones) == 0 {
		err = fmt.Errorf("the shard map is empty; give the zone of each shard")
	}
	if err != nil {
		return nil, usage("--file %s: %w", r.File, err)
	}
	return zones, nil
}

// setShardJob is the request of "shard job set".
type setShardJob struct {
	one[string]
	surface.SetShardJobRequest
	File string   `json:"file" flag:"FILE" doc:"The shard map: a file with a JSON object that has the zone of each shard, or - for stdin."`
	Map  []string `json:"map" flag:"SHARD=ZONE,..." doc:"The shard map as a list; may be repeated."`
}

// Check returns an error if the request is invalid. It does not read the file.
func (r setShardJob) Check() (err error) {
	if err = plan.CheckName(r.ID); err != nil {
		return err
	}
	request := r.SetShardJobRequest
	switch {
	case len(r.Map) > 0:
		request.Zones, err = surface.ParseZones(r.Map)
	case r.File != "":
		request.Zones = surface.ZoneMap{"any": "any"}
	}
	if err != nil {
		return err
	}
	return request.Check()
}

func (t shardCommands) set(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r setShardJob) (err error) {
	request := r.SetShardJobRequest
	if request.Zones, err = t.zones(r); err != nil {
		return err
	}
	set, _, err := surface.SetShardJob(ctx, b, by, r.ID, request, nil)
	if err != nil {
		return err
	}
	t.warnIfUnhandled(ctx, b, set.Type)
	what := "created"
	if set.Before != nil {
		what = "changed"
	}
	t.say("shard job %s is %s", r.ID, what)
	switch {
	case set.Before == nil:
		t.warnUnserved(ctx, b, surface.Each(set.Zones, func(z surface.ShardZone) string { return z.Zone }))
		t.hint(fmt.Sprintf("to see it: holdfast shard job get %s; to see its shards: holdfast shard map get %[1]s", r.ID))
	case len(set.Moved) > 0:
		t.sayMoved(ctx, b, surface.ShardMapChange{Job: r.ID, MapVersion: set.MapVersion, Moved: set.Moved})
	}
	return stored(printItem(t.tool, c, set, func() error {
		if len(set.Moved) > 0 {
			return t.printMoved(set.Moved)
		}
		return printTable(t.tool, []surface.ShardJob{set.ShardJob}, "", t.columns())
	}), "shard job %s is %s", r.ID, what)
}

// sayMoved says what a change of a shard map means for the passes, and warns of zones without a worker.
func (t shardCommands) sayMoved(ctx context.Context, b *app.Backend, change surface.ShardMapChange) {
	if len(change.Moved) == 0 {
		t.say("the shard map of %s stays as it is", change.Job)
		return
	}
	t.say("the shard map of %s has the version %d; passes that run end within about a second", change.Job, change.MapVersion)
	var zones []string
	for _, m := range change.Moved {
		if m.To != "" {
			zones = append(zones, m.To)
		}
	}
	t.warnUnserved(ctx, b, zones)
}

// warnUnserved prints a warning for each zone whose queue no live worker consumes. It prints nothing if no worker is
// live.
func (t shardCommands) warnUnserved(ctx context.Context, b *app.Backend, zones []string) {
	workers, err := b.Store.Workers(ctx, false)
	if err != nil || len(workers) == 0 {
		return // the change is stored, so an error does not matter
	}
	var served []string
	for _, worker := range workers {
		served = append(served, worker.Queues...)
	}
	slices.Sort(zones)
	for _, zone := range slices.Compact(zones) {
		if !slices.Contains(served, zone) {
			t.say("warning: no live worker consumes the queue %s; the passes of this zone wait%s", zone, didYouMean(zone, served))
		}
	}
}

// printMoved prints the shards whose zone has changed.
func (t shardCommands) printMoved(moved []surface.MovedShard) error {
	if len(moved) == 0 {
		return nil
	}
	return printTable(t.tool, moved, "", []column[surface.MovedShard]{
		{"shard", func(m surface.MovedShard) string { return m.Shard }},
		{"from", func(m surface.MovedShard) string { return m.From }},
		{"to", func(m surface.MovedShard) string { return m.To }},
		{"offset", func(m surface.MovedShard) string { return fmt.Sprint(m.Offset) }},
	})
}

func (t shardCommands) columns() []column[surface.ShardJob] {
	return []column[surface.ShardJob]{
		{"job", func(j surface.ShardJob) string { return j.Name }},
		{"type", func(j surface.ShardJob) string { return j.Type }},
		{"every", func(j surface.ShardJob) string { return shortDuration(j.Every) }},
		{"shards", func(j surface.ShardJob) string { return fmt.Sprint(j.Shards) }},
		{"zones", func(j surface.ShardJob) string {
			return fmt.Sprint(len(slices.DeleteFunc(slices.Clone(j.Zones), func(z surface.ShardZone) bool { return z.Shards == 0 })))
		}},
		{"open", func(j surface.ShardJob) string {
			return fmt.Sprint(len(slices.DeleteFunc(slices.Clone(j.Zones), func(z surface.ShardZone) bool { return !z.Open })))
		}},
		{"map", func(j surface.ShardJob) string { return fmt.Sprint(j.MapVersion) }},
	}
}

// describe prints a shard job as lines with a label and a text, and its zones as a table.
func (t shardCommands) describe(j surface.ShardJob, _ app.ShardJob) error {
	every := shortDuration(j.Every)
	if j.Every == 0 {
		every = "as soon as the pass has ended"
	}
	err := t.fields([]field{
		{"job", j.Name},
		{"note", j.Note},
		{"type", j.Type},
		{"every", every},
		{"max attempts", unlessZero(j.MaxAttempts)},
		{"shards", fmt.Sprint(j.Shards)},
		{"map", fmt.Sprintf("version %d", j.MapVersion)},
		{"created", t.absoluteAndRelative(j.CreatedAt)},
		{"by", j.Actor},
		{"reason", j.Reason},
		{"last failure", j.LastFailure()},
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(t.stdout)
	return printTable(t.tool, j.Zones, "", []column[surface.ShardZone]{
		{"zone", func(z surface.ShardZone) string { return z.Zone }},
		{"shards", func(z surface.ShardZone) string { return fmt.Sprint(z.Shards) }},
		{"offset", func(z surface.ShardZone) string {
			if z.Offset == nil {
				return ""
			}
			return fmt.Sprint(*z.Offset)
		}},
		{"pass", func(z surface.ShardZone) string { return unlessZero(z.Task) }},
		{"state", func(z surface.ShardZone) string { return string(z.State) }},
		{"next", func(z surface.ShardZone) string { return t.stamp(z.NextPassAt) }},
	})
}

// describeMap prints a shard map as a table.
func (t shardCommands) describeMap(m surface.ShardMap, _ app.ShardJob) error {
	return printTable(t.tool, m.Shards, "", []column[surface.OwnedShard]{
		{"shard", func(s surface.OwnedShard) string { return s.Shard }},
		{"zone", func(s surface.OwnedShard) string { return s.Zone }},
		{"offset", func(s surface.OwnedShard) string { return fmt.Sprint(s.Offset) }},
	})
}

// printChange says and prints what a change of a shard map has done.
func (t shardCommands) printChange(ctx context.Context, c *cli.Context, b *app.Backend, change surface.ShardMapChange, err error) error {
	if err != nil {
		return notFound(err, fmt.Sprintf(seeShardJobs+"; for the shards of a job: holdfast shard map get %s", c.Args().First()))
	}
	t.sayMoved(ctx, b, change)
	return stored(printItem(t.tool, c, change, func() error { return t.printMoved(change.Moved) }), "the shard map of %s is changed", change.Job)
}

// moveShard is the request of "shard move".
type moveShard struct {
	one[string]
	surface.ShardMove
}

func (t shardCommands) move(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r moveShard) error {
	change, _, err := surface.MoveShard(ctx, b, by, r.ID, r.ShardMove)
	return t.printChange(ctx, c, b, change, err)
}

// drainZone is the request of "shard drain".
type drainZone struct {
	one[string]
	surface.ZoneDrain
}

func (t shardCommands) drain(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r drainZone) error {
	change, _, err := surface.DrainZone(ctx, b, by, r.ID, r.ZoneDrain)
	return t.printChange(ctx, c, b, change, err)
}

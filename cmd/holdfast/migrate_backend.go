package main

import (
	"context"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

func (t *tool) migrateBackendCommand() *cli.Command {
	return &cli.Command{
		Name:  "migrate-backend",
		Usage: "carry every task from a file to PostgreSQL",
		Description: `Stop holdfast serve first. Every task goes over as it is, with its attempts: ids, payloads, times,
unique keys. While this runs nobody can change the tasks, and when it is through they are the
server's, all at once. The file is left as it was, for reading only: a signpost that says where the
tasks are.

Whatever stops it, run it again: it goes on where it was. With --undo it goes back instead, as long as it
is not through.

The target must be empty, so that the ids can stay as they are. With --into-existing it need not be,
and the ids are shifted by the number that is printed. --schema says which schema it is. The password
need not be in the URL, where others on this machine can see it: PGPASSWORD and ~/.pgpass do as well.

Two ways out when one of the two sides is lost, which ask first or need --yes:
--undo --target-lost unblocks the file without asking the server. It must be true that the database the
tasks were going to is gone for good or never got them: look there for tasks first, or they run twice.
--undo --source-lost, without --from, aborts every import at the server that is not finished. It must be
true that the files they come from are lost: what is copied already is deleted.

Example:
  holdfast migrate-backend --from sqlite:/var/lib/holdfast/holdfast.db --to postgres://localhost/app --migrate`,
		Flags: []cli.Flag{
			outputFlag(),
			&cli.StringFlag{Name: "from", Usage: "the file that has the tasks, as sqlite:`PATH`"},
			&cli.StringFlag{Name: "to", Usage: "`URL` of the database they go to, as postgres://user:password@host:5432/name"},
			&cli.BoolFlag{Name: "into-existing", Usage: "carry them also if there are tasks already"},
			&cli.BoolFlag{Name: "migrate", Usage: "create or update the schema they go to first"},
			&cli.BoolFlag{Name: "undo", Usage: "take back what was begun and is not through"},
			&cli.BoolFlag{Name: "target-lost", Usage: "with --undo: unblock the file, its target is gone for good"},
			&cli.BoolFlag{Name: "source-lost", Usage: "with --undo: abort unfinished imports, their files are gone"},
			yesFlag(),
		},
		Action: t.do(t.migrateBackend),
	}
}

func (t *tool) migrateBackend(ctx context.Context, c *cli.Context) error {
	if err := checkMigrateBackend(c); err != nil {
		return err
	}
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	o := app.MoveOptions{
		From: c.String("from"), To: c.String("to"), Config: cfg, Log: t.quietLogger(cfg),
		Into: store.Into(c.Bool("into-existing")), Migrate: c.Bool("migrate"),
	}
	switch {
	case c.Bool("target-lost"):
		err = t.moveRelease(ctx, c, o)
	case c.Bool("source-lost"):
		err = t.moveAbort(ctx, c, o)
	case c.Bool("undo"):
		err = t.moveBack(ctx, o)
	default:
		err = t.moveAway(ctx, c, o)
	}
	if err != nil && ctx.Err() != nil { // that it was interrupted is not all there is to say
		t.say("%v", err)
	}
	return err
}

// checkMigrateBackend reports flags that do not go together.
func checkMigrateBackend(c *cli.Context) error {
	undo, sourceLost, targetLost := c.Bool("undo"), c.Bool("source-lost"), c.Bool("target-lost")
	needed := map[string]bool{"from": !sourceLost, "to": !targetLost}
	for _, name := range []string{"from", "to"} {
		if needed[name] && c.String(name) == "" {
			return usageOf(commandName(c), "--%s is missing; tasks are carried from sqlite:/path/to/file.db to postgres://user:password@host:5432/name", name)
		}
	}
	switch {
	case (sourceLost || targetLost) && !undo:
		return usageOf(commandName(c), "--source-lost and --target-lost go with --undo")
	case sourceLost && targetLost:
		return usageOf(commandName(c), "--source-lost and --target-lost do not go together")
	case sourceLost && c.IsSet("from"):
		return usageOf(commandName(c), "--source-lost is for files that are lost; leave --from out, or --source-lost")
	case undo && c.Bool("into-existing"):
		return usageOf(commandName(c), "--undo and --into-existing do not go together")
	}
	return nil
}

func (t *tool) moveBack(ctx context.Context, o app.MoveOptions) error {
	undone, err := app.MoveBack(ctx, o)
	switch {
	case err != nil:
		return err
	case undone:
		t.say("taken back: the tasks are those of %s again; nothing of them is left at %s", o.From, configs.RedactURL(o.To))
	default:
		t.say("the tasks of %s are all there; there was nothing to take back", o.From)
	}
	return nil
}

func (t *tool) moveRelease(ctx context.Context, c *cli.Context, o app.MoveOptions) error {
	question := "unblock the tasks of " + o.From + " without asking the database they were carried to; if they are there, they run twice"
	if err := t.confirm(c, question); err != nil {
		return err
	}
	mark, err := app.MoveRelease(ctx, o)
	switch {
	case err != nil:
		return err
	case mark.Transfer == "":
		t.say("the tasks of %s are all there; there was nothing to unblock", o.From)
	default:
		t.say("unblocked: the tasks are those of %s again; %s was not asked", o.From, mark.To)
	}
	return nil
}

// aborted is an import that was aborted, as it is printed.
type aborted struct {
	From    string    `json:"from"`
	BegunAt time.Time `json:"begun_at"`
	Staged  int64     `json:"staged"`
}

func (t *tool) moveAbort(ctx context.Context, c *cli.Context, o app.MoveOptions) error {
	place := fmt.Sprintf("%s (schema %s)", configs.RedactURL(o.To), o.Config.Database.Schema)
	if err := t.confirm(c, "abort every unfinished import at "+place+" and delete what was copied"); err != nil {
		return err
	}
	imports, err := app.MoveAbort(ctx, o)
	rows := make([]aborted, len(imports))
	for i, one := range imports {
		rows[i] = aborted{one.From, one.BegunAt, one.Tasks}
	}
	if len(rows) == 0 && err != nil {
		return err
	}
	printErr := list(t, c, rows, "there is no unfinished import at "+place,
		column[aborted]{"aborted from", func(r aborted) string { return r.From }},
		column[aborted]{"begun", func(r aborted) string { return stamp(r.BegunAt) }},
		column[aborted]{"staged", func(r aborted) string { return fmt.Sprint(r.Staged) }},
	)
	if err != nil {
		return err
	}
	return printErr
}

// compared is one line of the closing table.
type compared struct {
	What    string `json:"what"`
	Source  int64  `json:"source"`
	Carried int64  `json:"carried"`
}

func (t *tool) moveAway(ctx context.Context, c *cli.Context, o app.MoveOptions) error {
	bar := &moveBar{t: t}
	o.Progress = bar.set
	moved, err := app.MoveAway(ctx, o)
	bar.finish()
	if err != nil {
		return err
	}
	if moved.Already {
		return list(t, c, []compared{}, fmt.Sprintf("all tasks of %s were carried to %s already, at %s; nothing was done",
			o.From, configs.RedactURL(o.To), stamp(moved.At)))
	}
	var rows []compared
	for _, state := range holdfast.States() {
		if state != holdfast.Running { // those were settled first
			rows = append(rows, compared{string(state), moved.Source.States[state], moved.Staged.States[state]})
		}
	}
	rows = append(rows,
		compared{"tasks", moved.Source.Tasks(), moved.Staged.Tasks()},
		compared{"attempts", moved.Source.Attempts, moved.Staged.Attempts})
	err = list(t, c, rows, "",
		column[compared]{"what", func(r compared) string { return r.What }},
		column[compared]{"source", func(r compared) string { return fmt.Sprint(r.Source) }},
		column[compared]{"carried", func(r compared) string { return fmt.Sprint(r.Carried) }},
	)
	t.sayMoved(o, moved)
	return err
}

// sayMoved says what was done, and what to do now.
func (t *tool) sayMoved(o app.MoveOptions, moved app.Moved) {
	ids := "the ids are what they were"
	if moved.Import.Shift > 0 {
		ids = fmt.Sprintf("%d was added to every id", moved.Import.Shift)
	}
	t.say("carried %s from %s to %s in %s; %s", several(int(moved.Import.Tasks), "task"), o.From, configs.RedactURL(o.To), duration(moved.Took), ids)
	schema := ""
	if name := o.Config.Database.Schema; name != configs.Default().Database.Schema {
		schema = ", HOLDFAST_DATABASE_SCHEMA to " + name
	}
	t.say("next: set DATABASE_URL to that server%s and AMQP_URL to its RabbitMQ, wherever holdfast runs, and start holdfast serve", schema)
	t.say("keep the file, which is as it was, until no configuration names it: it says where the tasks are; if it were deleted, a forgotten enqueue would begin a new one")
}

// moveBar shows how far the copy is, on a terminal only.
type moveBar struct {
	t   *tool
	bar *progressbar.ProgressBar // nil until the first call, and without a terminal
}

func (b *moveBar) set(done, total int64) {
	if b.bar == nil {
		if b.bar = b.t.progress(total, "carry"); b.bar == nil {
			return
		}
	}
	_ = b.bar.Set64(done) // it is only for show
}

func (b *moveBar) finish() {
	if b.bar != nil {
		_ = b.bar.Finish()
	}
}

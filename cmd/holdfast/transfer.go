package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/transfer"
)

type transferCommands struct{ *tool }

func (t transferCommands) exportCommand() *cli.Command {
	return t.verb("export", "write every task as a line of JSON, for an import into another store",
		`First stop every holdfast serve and every program that enqueues tasks. If a worker is live or a task is
running, the command fails with exit code 4. During the export, no process can store or change a task.

The export has every task with its id, payload, times, unique key, values and attempts, and the unique keys that are
kept for deleted tasks. The last line has the number of tasks in each state with a checksum. An import refuses a file
without that line. Payloads are not encrypted. The file of -o appears only when it is complete, and only its owner can
read it.

Schedules, sources, shard jobs and batches are not exported. The command says how many there are. The tasks of an open
batch are exported without their batch.

After the import, never serve this store again: the tasks would run twice. Delete the store, or move its file to another
folder.

Example:
  holdfast export -o tasks.jsonl`,
		plain(t.export), []cli.Flag{&cli.StringFlag{Name: "file", Aliases: []string{"o"}, Usage: "write to `FILE` instead of stdout"}})
}

func (t transferCommands) importCommand() *cli.Command {
	return t.verb("import FILE", "store every task of an export, with the same ids",
		`The store must have no other tasks, and no worker may be live. If FILE is -, the command reads stdin. For
PostgreSQL, first create the schema with: holdfast migrate up

The command checks a regular file completely before it stores a task. If an error or a signal stops the import, run it
again: it skips the tasks that the store already has. At the end it compares the number and the checksum of the tasks in
each state. If they differ, the exit code is 7.

Example:
  DATABASE_URL=sqlite:old.db AMQP_URL=inproc: holdfast export | holdfast import -`,
		plain(t.importTasks), outputFlag())
}

func (t transferCommands) export(ctx context.Context, c *cli.Context) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	var totals transfer.Totals
	var leftOut int
	if path := c.String("file"); c.IsSet("file") && path != "-" {
		err = wholeFile(path, func(to io.Writer) error {
			totals, leftOut, err = t.exportTo(ctx, cfg, to)
			return err
		})
	} else {
		totals, leftOut, err = t.exportTo(ctx, cfg, t.stdout)
	}
	if err != nil {
		return err
	}
	t.say("exported %s; after the import, never serve %s again: the tasks would run twice",
		plural(int(totals.Tasks()), "task"), configs.RedactURL(cfg.Database.URL))
	if leftOut > 0 {
		t.say("warning: the export leaves out %s; create them in the new store", fmt.Sprint(leftOut, " schedules, sources, shard jobs or open batches"))
		t.hint("to see them: holdfast schedule list, holdfast slice source list, holdfast shard job list")
	}
	return nil
}

func (t transferCommands) exportTo(ctx context.Context, cfg configs.Config, to io.Writer) (transfer.Totals, int, error) {
	if bar := t.progress(-1, "export"); bar != nil {
		defer func() { _ = bar.Finish() }() // an error of the bar does not matter
		to = io.MultiWriter(to, bar)
	}
	return app.Export(ctx, cfg, t.quietLogger(cfg), to)
}

// wholeFile calls write with a temporary file in the folder of path. If write succeeds, it renames the file to path.
func wholeFile(path string, write func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return usage("-o: %s is not a regular file; write to stdout", path)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usage("-o: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // only the owner can read it
	if err != nil {
		return usage("-o: %w", err)
	}
	if err = contain.Call(func() error { return write(file) }); err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// importRow has the numbers of tasks in one state, in the export and in the store.
type importRow struct {
	State  holdfast.State `json:"state"`
	Export int64          `json:"export"`
	Store  int64          `json:"store"`
}

func (t transferCommands) importTasks(ctx context.Context, c *cli.Context) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	from, size := t.stdin, int64(-1)
	if path := c.Args().First(); path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return usage("%w", err)
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
			if err := transfer.Check(ctx, file); err != nil {
				return fmt.Errorf("%w; nothing was stored", err)
			}
			if _, err := file.Seek(0, io.SeekStart); err != nil {
				return err
			}
		}
		from = file
	}
	if bar := t.progress(size, "import"); bar != nil {
		defer func() { _ = bar.Finish() }() // an error of the bar does not matter
		from = io.TeeReader(from, bar)
	}
	done, err := app.Import(ctx, cfg, t.quietLogger(cfg), from)
	if err != nil {
		if done.Stored > 0 {
			t.say("stored %s before this error:", plural(int(done.Stored), "task"))
		}
		return err
	}
	var rows []importRow
	for _, state := range holdfast.States() {
		if state != holdfast.Running {
			rows = append(rows, importRow{state, done.Export.States[state].Tasks, done.Store.States[state].Tasks})
		}
	}
	err = printList(t.tool, c, "states", rows, "",
		column[importRow]{"state", func(r importRow) string { return string(r.State) }},
		column[importRow]{"export", func(r importRow) string { return fmt.Sprint(r.Export) }},
		column[importRow]{"store", func(r importRow) string { return fmt.Sprint(r.Store) }},
	)
	kept := ""
	if keys := int(done.Store.Keys.Keys); keys > 0 {
		kept = ", and the store keeps " + plural(keys, "unique key")
	}
	t.say("imported %s, skipped %d that the store already had; the numbers and checksums of all states match%s",
		plural(int(done.Stored), "task"), done.Export.Tasks()-done.Stored, kept)
	t.say("next: start holdfast serve; delete the old store or move its file to another folder, and never serve it again")
	return err
}

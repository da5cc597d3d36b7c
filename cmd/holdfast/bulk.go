package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/producer"
)

// The limits of --jsonl.
const (
	chunkTasks   = 1000
	chunkBytes   = 8 << 20
	lineOverhead = 64 << 10 // maximum size of a line without its payload
	readBuffer   = 256 << 10
	maxBadLines  = 20
)

// bulk stores the tasks of a file in chunks.
type bulk struct {
	t        *tool
	checker  *checker
	defaults holdfast.NewTask
	enqueue  func(context.Context, []holdfast.NewTask) ([]producer.Result, error)
	bar      *progressbar.ProgressBar // nil if stderr is not a terminal
	results  *resultWriter

	// lines, tasks and bytes are the current chunk.
	lines []int // the line numbers of the tasks
	tasks []holdfast.NewTask
	bytes int

	enqueued, duplicates, bad int
	retryable                 bool // some of the bad lines may be stored later
	types                     map[string]bool
}

// lines stores one task for each line of the file that --jsonl names.
func (t enqueueCommand) lines(ctx context.Context, c *cli.Context, cfg configs.Config, check *checker, defaults holdfast.NewTask) error {
	from, size := t.stdin, int64(-1)
	if path := c.String("jsonl"); path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return usage("--jsonl: %w", err)
		}
		defer file.Close()
		from = file
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	chosen, _ := format(c)
	reader := &lineReader{from: bufio.NewReaderSize(from, readBuffer), limit: cfg.Producer.MaxPayload + lineOverhead}
	return t.useBackend(ctx, cfg, daemon.Open, func(b *app.Backend) error {
		if err := t.awaitBroker(ctx, b); err != nil {
			t.warnUnavailable(b, "tasks are stored", err)
		}
		p := b.Producer(nil)
		defer t.finish(b, p)
		work := &bulk{
			types: make(map[string]bool),
			t:     t.tool, checker: check, defaults: defaults, enqueue: p.EnqueueMany, bar: t.progress(size, "enqueue"),
			results: &resultWriter{w: t.stdout, format: chosen},
		}
		err := work.run(ctx, reader)
		t.warnIfUnhandled(ctx, b, slices.Sorted(maps.Keys(work.types))...)
		return err
	})
}

// run reads all lines and stores their tasks. After an error it also prints the numbers of stored tasks and bad lines.
func (b *bulk) run(ctx context.Context, r *lineReader) error {
	err := b.read(ctx, r)
	if closeErr := b.results.close(); err == nil {
		err = closeErr
	}
	if b.bar != nil {
		_ = b.bar.Finish() // an error of the bar does not matter
	}
	if b.bad > maxBadLines {
		b.t.say("… and %s", plural(b.bad-maxBadLines, "more bad line"))
	}
	b.t.say("enqueued %d, duplicates %d, bad %d", b.enqueued, b.duplicates, b.bad)
	switch {
	case err != nil:
		return err
	case b.bad > 0 && b.enqueued+b.duplicates > 0:
		return &failure{code: exitPartly}
	case b.retryable:
		return &failure{code: exitUnavailable}
	case b.bad > 0:
		return &failure{code: exitUsage}
	}
	return nil
}

// read reads all lines and stores their tasks. It stores a chunk when the chunk is full or when the next read may
// block.
func (b *bulk) read(ctx context.Context, r *lineReader) error {
	for number := 1; ; number++ {
		line, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return b.flush(ctx)
		case errors.Is(err, errLong):
			b.reject(number, fmt.Errorf("the line has more than %d bytes", r.limit))
		case err != nil:
			return errors.Join(fmt.Errorf("line %d: %w", number, err), b.flush(ctx))
		default:
			if number == 1 {
				line = bytes.TrimPrefix(line, []byte("\ufeff")) // a byte order mark
			}
			b.add(number, line)
		}
		if len(b.tasks) == chunkTasks || b.bytes >= chunkBytes || len(b.tasks) > 0 && r.mayBlock() {
			if err := b.flush(ctx); err != nil {
				return err
			}
		}
		if b.bar != nil {
			_ = b.bar.Set64(r.read)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// add parses and checks a line and adds its task to the chunk. It ignores empty lines.
func (b *bulk) add(number int, line []byte) {
	if len(line) == 0 {
		return
	}
	task, err := surface.ParseTask(line, b.defaults)
	if err == nil {
		err = b.checker.check(task)
	}
	if err != nil {
		b.reject(number, err)
		return
	}
	b.lines = append(b.lines, number)
	b.tasks = append(b.tasks, task)
	b.types[task.Type] = true
	b.bytes += len(line)
}

// reject counts a bad line and reports it, up to maxBadLines.
func (b *bulk) reject(number int, err error) {
	if b.bad++; b.bad > maxBadLines {
		return
	}
	if b.bar != nil {
		_ = b.bar.Clear()
	}
	b.t.sayError(fmt.Sprintf("line %d", number), err)
}

// flush stores the chunk.
func (b *bulk) flush(ctx context.Context) error {
	if len(b.tasks) == 0 {
		return nil
	}
	results, err := b.enqueue(ctx, b.tasks)
	var refused producer.TaskErrors
	errors.As(err, &refused)
	err = withoutRefused(err, refused)
	if writeErr := b.record(results, refused); writeErr != nil && err == nil {
		return stored(writeErr, "stopped after line %d", b.lines[len(b.lines)-1])
	}
	if err != nil {
		return fmt.Errorf("stopped at line %d: %w", b.lines[min(len(results), len(b.lines)-1)], err)
	}
	b.lines, b.tasks, b.bytes = b.lines[:0], b.tasks[:0], 0
	return nil
}

// withoutRefused returns an error of EnqueueMany without its parts about refused tasks. The command reports those by
// their line numbers, because the indexes in the error count from the start of the call.
func withoutRefused(err error, refused producer.TaskErrors) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && refused != nil {
		return errors.Join(slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(one error) bool {
			switch one.(type) {
			case producer.TaskErrors, *producer.TaskError:
				return true
			}
			return false
		})...)
	}
	return err
}

// record counts and prints the results of a chunk. The store has refused some of its tasks. If record cannot print a
// result, it still counts the others, and then returns the error.
func (b *bulk) record(results []producer.Result, refused producer.TaskErrors) (err error) {
	from := 0
	for _, one := range refused {
		err = b.recordStored(b.lines[from:one.Index], results[from:one.Index], err)
		b.reject(b.lines[one.Index], one.Err)
		b.retryable = b.retryable || errors.Is(one.Err, holdfast.ErrUnavailable)
		from = one.Index + 1
	}
	return b.recordStored(b.lines[from:], results[from:], err)
}

// recordStored counts results. It prints them unless err, the error of an earlier result, is set. It returns the first
// error.
func (b *bulk) recordStored(lines []int, results []producer.Result, err error) error {
	for i, result := range results {
		if result.Duplicate {
			b.duplicates++
		} else {
			b.enqueued++
		}
		if err == nil {
			err = b.results.write(lineResult{lines[i], result.ID, result.Duplicate, result.State})
		}
	}
	return err
}

// lineResult is the result of a line that was stored or is a duplicate.
type lineResult struct {
	Line      int             `json:"line"`
	ID        holdfast.TaskID `json:"id"`
	Duplicate bool            `json:"duplicate"`
	State     holdfast.State  `json:"state,omitempty"` // of the task that has the unique key
}

// resultWriter writes each result at once: as a JSON line, or as an element of the array that printList would write. In
// table format it writes nothing, because the summary is enough.
type resultWriter struct {
	w      io.Writer
	format string
	begun  bool
}

func (r *resultWriter) write(result lineResult) error {
	line, err := json.Marshal(result)
	if err != nil || r.format == asTable {
		return err
	}
	before := ""
	if r.format == asJSON {
		if before = ",\n  "; !r.begun {
			before = r.opening() + "\n  "
		}
	}
	r.begun = true
	if r.format == asJSONL {
		line = append(line, '\n')
	}
	_, err = fmt.Fprintf(r.w, "%s%s", before, line)
	return err
}

func (r *resultWriter) close() error {
	if r.format != asJSON {
		return nil
	}
	end := "\n]"
	if !r.begun {
		end = r.opening() + "]"
	}
	if r.format == asJSON {
		end += "}"
	}
	_, err := io.WriteString(r.w, end+"\n")
	return err
}

// opening returns the text before the first result.
func (r *resultWriter) opening() string {
	if r.format == asJSON {
		return `{"tasks": [`
	}
	return "["
}

// lineReader reads lines. It skips lines that are longer than the limit, without keeping them in memory.
type lineReader struct {
	from  *bufio.Reader
	limit int   // the maximum length of a line, in bytes
	read  int64 // bytes read so far
}

// errLong is the error for a line that is longer than the limit. The next call of next returns the following line.
var errLong = errors.New("the line is too long")

// next returns the next line without leading and trailing space. It returns errLong for a line that is longer than the
// limit, and io.EOF after the last line. The caller may keep the bytes.
func (r *lineReader) next() ([]byte, error) {
	var line []byte
	long, begun := false, false
	for {
		part, err := r.from.ReadSlice('\n')
		r.read += int64(len(part))
		begun = begun || len(part) > 0
		if len(line)+len(part) > r.limit+len("\r\n") {
			long, line = true, nil
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && !begun:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case long:
			return nil, errLong
		}
		return bytes.TrimSpace(line), nil
	}
}

// mayBlock reports whether the next call of next may block until more data arrives.
func (r *lineReader) mayBlock() bool { return r.from.Buffered() == 0 }

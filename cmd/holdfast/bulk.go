package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/surface"
)

// The limits of --jsonl.
const (
	chunkTasks   = plan.MaxChunk // the maximum size of a page of a batch
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
	results  *resultWriter
	lines    *taskLines

	enqueued, duplicates int
	retryable            bool // some of the bad lines may be stored later
	types                map[string]bool
}

// lines stores one task for each line of the file that --jsonl names.
func (t enqueueCommand) lines(ctx context.Context, c *cli.Context, cfg configs.Config, check *checker, defaults holdfast.NewTask) error {
	from, done, err := t.openLines(c.String("jsonl"))
	if err != nil {
		return err
	}
	defer done()
	chosen, _ := format(c)
	return t.useBackend(ctx, cfg, daemon.Open, func(b *app.Backend) error {
		if err := t.awaitBroker(ctx, b); err != nil {
			t.warnUnavailable(b, "tasks are stored", err)
		}
		p := b.Producer(nil)
		defer t.finish(b, p)
		work := &bulk{
			types: make(map[string]bool),
			t:     t.tool, checker: check, defaults: defaults, enqueue: p.EnqueueMany,
			results: &resultWriter{w: t.stdout, format: chosen},
		}
		err := work.run(ctx, from)
		t.warnIfUnhandled(ctx, b, slices.Sorted(maps.Keys(work.types))...)
		return err
	})
}

// run reads all lines and stores their tasks. After an error it also prints the numbers of stored tasks and bad lines.
func (b *bulk) run(ctx context.Context, from io.Reader) error {
	b.lines = b.t.taskLines(from, b.checker.maxPayload+lineOverhead, "enqueue", b.parse)
	var err error
	for chunk, readErr := range b.lines.chunks(ctx) {
		if err = errors.Join(readErr, b.flush(ctx, chunk)); err != nil {
			break
		}
	}
	err = cmp.Or(err, b.results.close())
	b.lines.finishReport()
	bad := b.lines.bad
	b.t.say("enqueued %d, duplicates %d, bad %d", b.enqueued, b.duplicates, bad)
	switch {
	case err != nil:
		return err
	case bad > 0 && b.enqueued+b.duplicates > 0:
		return &failure{code: exitPartly}
	case b.retryable:
		return &failure{code: exitUnavailable}
	case bad > 0:
		return &failure{code: exitUsage}
	}
	return nil
}

// parse returns the task of a line.
func (b *bulk) parse(line []byte) (holdfast.NewTask, error) {
	task, err := surface.ParseTask(line, b.defaults)
	if err == nil {
		err = b.checker.check(task)
	}
	return task, err
}

// flush stores a chunk.
func (b *bulk) flush(ctx context.Context, chunk taskChunk) error {
	if len(chunk.tasks) == 0 {
		return nil
	}
	for _, task := range chunk.tasks {
		b.types[task.Type] = true
	}
	results, err := b.enqueue(ctx, chunk.tasks)
	var refused producer.TaskErrors
	errors.As(err, &refused)
	err = withoutRefused(err, refused)
	if writeErr := b.record(chunk.numbers, results, refused); writeErr != nil && err == nil {
		return stored(writeErr, "stopped after line %d", chunk.numbers[len(chunk.numbers)-1])
	}
	if err != nil {
		return fmt.Errorf("stopped at line %d: %w", chunk.numbers[min(len(results), len(chunk.numbers)-1)], err)
	}
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

// record counts and prints the results of the lines with the numbers. The store has refused some of the tasks. If record
// cannot print a result, it still counts the others, and then returns the error.
func (b *bulk) record(numbers []int, results []producer.Result, refused producer.TaskErrors) (err error) {
	from := 0
	for _, one := range refused {
		err = b.recordStored(numbers[from:one.Index], results[from:one.Index], err)
		_ = b.lines.report(numbers[one.Index], one.Err) // always nil
		b.retryable = b.retryable || errors.Is(one.Err, holdfast.ErrUnavailable)
		from = one.Index + 1
	}
	return b.recordStored(numbers[from:], results[from:], err)
}

// recordStored counts results. It prints them unless err, the error of an earlier result, is set. It returns the first
// error.
func (b *bulk) recordStored(numbers []int, results []producer.Result, err error) error {
	for i, result := range results {
		if result.Duplicate {
			b.duplicates++
		} else {
			b.enqueued++
		}
		if err == nil {
			err = b.results.write(lineResult{numbers[i], result.ID, result.Duplicate, result.State})
		}
	}
	return err
}

// lineResult is the result of a line that was stored or is a duplicate.
type lineResult struct {
	Line      int             `json:"line"`
	ID        holdfast.TaskID `json:"id"`
	Duplicate bool            `json:"duplicate"`
	State     holdfast.State  `json:"state,omitempty"` // of the task that has the unique key; empty if it was deleted
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
	if r.format == asJSONL {
		_, err = fmt.Fprintf(r.w, "%s\n", line)
		return err
	}
	before := ","
	if !r.begun {
		before = `{"tasks": [`
	}
	r.begun = true
	_, err = fmt.Fprintf(r.w, "%s\n  %s", before, line)
	return err
}

func (r *resultWriter) close() error {
	if r.format != asJSON {
		return nil
	}
	end := "\n]}\n"
	if !r.begun {
		end = `{"tasks": []}` + "\n"
	}
	_, err := io.WriteString(r.w, end)
	return err
}

// openLines opens the file of --jsonl. The caller calls done at the end.
func (t *tool) openLines(path string) (from io.Reader, done func(), err error) {
	if path == "-" {
		return t.stdin, func() {}, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, usage("--jsonl: %w", err)
	}
	return file, func() { file.Close() }, nil
}

// taskLines reads a task from each line of a file.
type taskLines struct {
	*lineReader
	t      *tool
	bar    *progressbar.ProgressBar // nil if stderr is not a terminal
	parse  func(line []byte) (holdfast.NewTask, error)
	reject func(number int, err error) error // gets each bad line; its error ends the reading

	bad  int    // lines that report has got
	hint string // of the first of them that has one
}

// taskLines returns the lines of from, and reports bad ones, also those with more than limit bytes. what is the name of
// the progress bar.
func (t *tool) taskLines(from io.Reader, limit int, what string, parse func(line []byte) (holdfast.NewTask, error)) *taskLines {
	size := int64(-1)
	if file, ok := from.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	l := &taskLines{lineReader: &lineReader{from: bufio.NewReaderSize(from, readBuffer), limit: limit}, t: t, bar: t.progress(size, what), parse: parse}
	l.reject = l.report
	return l
}

// taskChunk is some of the tasks of a file.
type taskChunk struct {
	numbers []int // of the lines
	tasks   []holdfast.NewTask
	bytes   int
}

// chunks returns the tasks in chunks. A chunk ends when it is full, and when the next read may block. The last one may be
// empty, or come with an error.
func (l *taskLines) chunks(ctx context.Context) iter.Seq2[taskChunk, error] {
	return func(yield func(taskChunk, error) bool) {
		if l.bar != nil {
			defer l.bar.Finish() // an error of the bar does not matter
		}
		var c taskChunk
		for number := 1; ; number++ {
			task, size, err := l.task(ctx, number)
			switch {
			case err != nil:
				if errors.Is(err, io.EOF) {
					err = nil
				}
				yield(c, err)
				return
			case size > 0:
				c.numbers, c.tasks, c.bytes = append(c.numbers, number), append(c.tasks, task), c.bytes+size
			}
			if len(c.tasks) == chunkTasks || c.bytes >= chunkBytes || len(c.tasks) > 0 && l.mayBlock() {
				if !yield(c, nil) {
					return
				}
				c = taskChunk{}
			}
			if l.bar != nil {
				_ = l.bar.Set64(l.read)
			}
		}
	}
}

// task returns the task of the next line and the size of the line, which is 0 if the line is empty or bad.
func (l *taskLines) task(ctx context.Context, number int) (task holdfast.NewTask, size int, err error) {
	if ctx.Err() != nil {
		return task, 0, ctx.Err()
	}
	line, err := l.next()
	switch {
	case errors.Is(err, errLong):
		return task, 0, l.reject(number, fmt.Errorf("the line has more than %d bytes", l.limit))
	case err != nil:
		return task, 0, fmt.Errorf("line %d: %w", number, err)
	case len(line) == 0:
		return task, 0, nil
	}
	if task, err = l.parse(line); err != nil {
		return task, 0, l.reject(number, err)
	}
	return task, len(line), nil
}

// report counts a bad line and reports it, up to maxBadLines. It returns nil.
func (l *taskLines) report(number int, err error) error {
	if l.bad++; l.bad > maxBadLines {
		return nil
	}
	if l.bar != nil {
		_ = l.bar.Clear()
	}
	l.t.say("line %d: %s", number, l.t.message(err))
	l.hint = cmp.Or(l.hint, hintText(holdfast.HintOf(err)))
	return nil
}

// finishReport says how many bad lines have no report of their own, and how to repair the others.
func (l *taskLines) finishReport() {
	if l.bad > maxBadLines {
		l.t.say("… and %s", plural(l.bad-maxBadLines, "more bad line"))
	}
	l.t.hint(l.hint)
}

// lineReader reads lines. It skips lines that are longer than the limit, without keeping them in memory.
type lineReader struct {
	from  *bufio.Reader
	limit int   // the maximum length of a line, in bytes
	read  int64 // bytes read so far
}

// errLong is the error for a line that is longer than the limit. The next call of next returns the following line.
var errLong = errors.New("the line is too long")

// next returns the next line without leading and trailing space, and without a byte order mark. It returns errLong for a line that is longer than the
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
		return bytes.TrimPrefix(bytes.TrimSpace(line), []byte("\ufeff")), nil
	}
}

// mayBlock reports whether the next call of next may block until more data arrives.
func (r *lineReader) mayBlock() bool { return r.from.Buffered() == 0 }

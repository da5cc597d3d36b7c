package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"
)

// watchEvery is the pause between two looks of --watch.
const watchEvery = 2 * time.Second

func watchFlag() cli.Flag {
	return &cli.BoolFlag{Name: "watch", Usage: fmt.Sprintf("show it again every %s until Ctrl-C", watchEvery)}
}

// frame gathers what one look shows, so that the screen does not flicker.
type frame struct {
	bytes.Buffer
	terminal bool // the frame is for a terminal
}

// watch repeats a command until ctx is done. On a terminal each look replaces the one before. Elsewhere they follow each
// other.
func (t *tool) watch(ctx context.Context, title string, look func() error) error {
	screen := t.stdout
	if !isTerminal(screen) {
		return repeat(ctx, look)
	}
	defer func(stderr io.Writer) { t.stdout, t.stderr = screen, stderr }(t.stderr)
	onScreen := isTerminal(t.stderr)
	return repeat(ctx, func() error {
		shown := &frame{terminal: true}
		t.stdout = shown
		if onScreen {
			t.stderr = shown
		}
		fmt.Fprintf(shown, "\x1b[H\x1b[2J%s   every %s, at %s\n\n", title, watchEvery, time.Now().Format(time.TimeOnly))
		err := look()
		if ctx.Err() != nil {
			return nil
		}
		if _, writeErr := shown.WriteTo(screen); err == nil {
			err = writeErr
		}
		return err
	})
}

func repeat(ctx context.Context, look func() error) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if err := look(); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

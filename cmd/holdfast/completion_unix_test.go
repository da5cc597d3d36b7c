//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// If a file of the configuration is a FIFO without a writer, the completion ends without names.
func TestNoNamesOfAFIFO(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan []candidate)
	go func() { ended <- storedNames(ctx, &tool{}, "queue", []string{"--config", path}) }()
	writer, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for the reader
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close() // the reader ends
	cancel()
	if got := <-ended; len(got) > 0 {
		t.Errorf("names: %q", got)
	}
}

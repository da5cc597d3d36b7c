package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineReader reads lines. It skips lines that are longer than the limit, without keeping them in memory.
type lineReader struct {
	from  *bufio.Reader
	limit int   // of a line, in bytes
	read  int64 // bytes read so far
}

// errLong is the error for a line that is longer than the limit. The next call of next returns the following line.
var errLong = errors.New("the line is too long")

// next returns the next line without leading and trailing space. Returns errLong for a line that is longer than the
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

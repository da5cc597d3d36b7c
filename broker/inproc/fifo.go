package inproc

import (
	"encoding/binary"
	"math/bits"
)

// chunkSize is the number of bytes that a queue allocates at once. It is small because one unsettled message keeps its
// whole chunk in memory.
const chunkSize = 4 << 10

type message struct {
	body     []byte // part of a chunk; never written to again
	requeues uint64 // how often it was received and requeued
}

// fifo is a first-in-first-out sequence of messages. Chunks of plain bytes store the messages one after another. Each
// message is preceded by its number of requeues and its length. The garbage collector has no pointers to follow, even
// with a million messages. Chunks are not reused, because dequeued messages still point into them.
type fifo struct {
	head, tail *chunk
	length     int
	dequeued   uint64 // number of messages that have ever been dequeued
}

type chunk struct {
	data []byte // never grows beyond its capacity, so its contents never move
	read int    // number of bytes already read
	next *chunk
}

// push appends a copy of the body.
func (f *fifo) push(requeues uint64, body []byte) {
	size := varintLen(requeues) + varintLen(uint64(len(body))) + len(body)
	if f.tail == nil || cap(f.tail.data)-len(f.tail.data) < size {
		f.grow(size)
	}
	data := binary.AppendUvarint(f.tail.data, requeues)
	data = binary.AppendUvarint(data, uint64(len(body)))
	f.tail.data = append(data, body...)
	f.length++
}

// grow appends a chunk with space for size bytes. A message larger than a quarter of chunkSize gets a chunk of its own,
// so at most a quarter of any chunk is unused.
func (f *fifo) grow(size int) {
	if size <= chunkSize/4 {
		size = chunkSize
	}
	c := &chunk{data: make([]byte, 0, size)}
	if f.tail == nil {
		f.head = c
	} else {
		f.tail.next = c
	}
	f.tail = c
}

// pop removes and returns the first message. The fifo must not be empty.
func (f *fifo) pop() message {
	for f.head.read == len(f.head.data) {
		f.head = f.head.next
	}
	c := f.head
	requeues, n := binary.Uvarint(c.data[c.read:])
	c.read += n
	length, n := binary.Uvarint(c.data[c.read:])
	c.read += n
	end := c.read + int(length)
	body := c.data[c.read:end:end]
	c.read = end
	f.length--
	f.dequeued++
	if f.length == 0 && cap(c.data) != chunkSize {
		f.head, f.tail = nil, nil // only an ordinary chunk has space for more messages
	}
	return message{body, requeues}
}

// varintLen returns the number of bytes that binary.AppendUvarint appends for x.
func varintLen(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }

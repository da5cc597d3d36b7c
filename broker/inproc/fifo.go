package inproc

import (
	"encoding/binary"
	"math/bits"
)

// chunkSize is what a queue allocates at a time. An unsettled message keeps its whole chunk
// in memory, hence not more.
const chunkSize = 4 << 10

// letter is a stored message.
type letter struct {
	body    []byte // part of a chunk, never written to again
	returns uint64 // how often it was received and given back
}

// fifo is a first-in-first-out sequence of letters. They lie one behind the other in
// chunks of plain bytes, each with the number of its returns and its length before it: a
// million of them is nothing the garbage collector has to look through. Chunks are
// not used twice, because letters that were taken out still point into them.
type fifo struct {
	head, tail *chunk
	length     int
	taken      uint64 // letters that were ever taken out
}

type chunk struct {
	data []byte // never grows beyond its capacity, so what lies in it never moves
	read int    // how much of data was taken out
	next *chunk
}

// push copies the body to the end.
func (f *fifo) push(returns uint64, body []byte) {
	size := varintLen(returns) + varintLen(uint64(len(body))) + len(body)
	if f.tail == nil || cap(f.tail.data)-len(f.tail.data) < size {
		f.grow(size)
	}
	data := binary.AppendUvarint(f.tail.data, returns)
	data = binary.AppendUvarint(data, uint64(len(body)))
	f.tail.data = append(data, body...)
	f.length++
}

// grow appends a chunk with room for size bytes. A large letter gets one of its own, so
// that at most a quarter of any chunk is left over.
func (f *fifo) grow(size int) {
	c := &chunk{}
	if size > chunkSize/4 {
		c.data = make([]byte, 0, size)
	} else {
		c.data = make([]byte, 0, chunkSize)
	}
	if f.tail == nil {
		f.head = c
	} else {
		f.tail.next = c
	}
	f.tail = c
}

// pop takes out the first letter. There must be one.
func (f *fifo) pop() letter {
	for f.head.read == len(f.head.data) {
		f.head = f.head.next
	}
	c := f.head
	returns, n := binary.Uvarint(c.data[c.read:])
	c.read += n
	length, n := binary.Uvarint(c.data[c.read:])
	c.read += n
	end := c.read + int(length)
	body := c.data[c.read:end:end]
	c.read = end
	f.length--
	f.taken++
	if f.length == 0 && cap(c.data) != chunkSize {
		f.head, f.tail = nil, nil // an ordinary chunk is filled up, a large one is only in the way
	}
	return letter{body, returns}
}

// varintLen is how many bytes AppendUvarint appends.
func varintLen(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }

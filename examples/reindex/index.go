package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// index is a search index in memory. It outlives the workers, and counts how often it has got each product.
type index struct {
	reach   sync.Once
	reached chan struct{} // closed when a product is not answered for the first time

	mu    sync.Mutex
	times []int // by product
	has   int   // products that the index has
	limit int   // with so many products, the index answers no more requests; -1 means no limit
}

func newIndex(products, limit int) *index {
	return &index{reached: make(chan struct{}), times: make([]int, products+1), limit: limit}
}

// ServeHTTP adds a product to the index. The path is its number.
func (x *index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(5 * time.Millisecond) // as a larger index would need
	text, err := io.ReadAll(r.Body)
	number, wrong := strconv.Atoi(r.URL.Path[1:])
	switch {
	case err != nil || wrong != nil || number < 1 || number >= len(x.times):
		http.Error(w, "not a product", http.StatusBadRequest)
	case !x.add(number):
		<-r.Context().Done() // the worker is killed while it waits for the answer
	default:
		fmt.Fprint(w, len(strings.Fields(string(text))))
	}
}

// add counts a product. It returns false at the limit.
func (x *index) add(number int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.has == x.limit {
		x.reach.Do(func() { close(x.reached) })
		return false
	}
	if x.times[number]++; x.times[number] == 1 {
		x.has++
	}
	return true
}

// resume removes the limit. It returns how often the index has got each product.
func (x *index) resume() []int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limit = -1
	return slices.Clone(x.times)
}

// report prints what the index has, and how many of the done products it has got again since before.
func (x *index) report(before, done []int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	twice, repeated := 0, 0
	for _, times := range x.times {
		if times > 1 {
			twice++
		}
	}
	for _, number := range done {
		if x.times[number] > before[number] {
			repeated++
		}
	}
	fmt.Printf("indexed: %d products, %d of them twice\n", x.has, twice)
	fmt.Printf("of the %d that had ended, %d were repeated\n", len(done), repeated)
}

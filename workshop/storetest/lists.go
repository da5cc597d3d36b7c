package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// ManyTasks describes the tasks for BenchmarkLists. Each adapter stores them in its own SQL. The task n, from 1 to
// Total, has these properties:
//
//   - It is ready if n > Finished() + 100, and running if it is one of the 100 tasks before those. Any other task is
//     dead if n is a multiple of 26, and done if not.
//   - g = n/26 % 300 is the group of a dead task: its fingerprint is g with 16 hexadecimal digits, its host is
//     host<g%100>.example.com, its status is 500 + g%5, and its class is http_<status>.
//   - Its type is type<g%20>, or rare if n = 26, and its queue is default.
//   - If n is a multiple of 10, its unique key is key<n>.
//   - If n is a multiple of 5, its tags are all, tenant:<n/5 % 200> and order:<n>.
//   - Its payload is {"order": {"id": n}, "url": "https://example.com/hook", "user": "ada"}.
type ManyTasks struct{ Total int }

// Finished returns the number of tasks that are done or dead: 5.2 of 5.7 million.
func (m ManyTasks) Finished() int { return int(int64(m.Total) * 52 / 57) }

// BenchmarkLists reports the 50th and the 95th percentile of the time of lists, in milliseconds. A list that stops
// after its time limit reports how many ids it has passed.
func (m ManyTasks) BenchmarkLists(b *testing.B, s desk.Store) {
	dead := []holdfast.State{holdfast.Dead}
	group := func() int { return rand.IntN(300) }
	fingerprint := func(g int) string { return fmt.Sprintf("%016x", g) }
	host := func(g int) string { return fmt.Sprintf("host%d.example.com", g%100) }
	absent := []store.PayloadTerm{{Path: []string{"order", "id"}, Value: "-1"}}
	anyID := func() holdfast.TaskID { return holdfast.TaskID(1 + rand.IntN(m.Total)) }
	for _, list := range []struct {
		name   string
		filter func() store.Filter
	}{
		{"all", func() store.Filter { return store.Filter{} }},
		{"dead", func() store.Filter { return store.Filter{States: dead} }},
		{"dead, any page", func() store.Filter { return store.Filter{States: dead, Before: anyID()} }},
		{"dead of a type", func() store.Filter {
			return store.Filter{States: dead, Type: fmt.Sprint("type", rand.IntN(20)), Before: anyID()}
		}},
		{"dead of a rare type", func() store.Filter { return store.Filter{States: dead, Type: "rare"} }},
		{"dead of a queue without any", func() store.Filter { return store.Filter{States: dead, Queue: "none"} }},
		{"dead of a group", func() store.Filter { return store.Filter{Fingerprint: fingerprint(group())} }},
		{"dead of a group and a type", func() store.Filter {
			g := group()
			return store.Filter{Fingerprint: fingerprint(g), Type: fmt.Sprint("type", g%20), States: dead}
		}},
		{"dead of a host", func() store.Filter { return store.Filter{Host: host(group()), States: dead} }},
		{"dead of a status", func() store.Filter { return store.Filter{Status: 500 + rand.IntN(5), States: dead} }},
		{"dead of a host and a status without any", func() store.Filter { return store.Filter{Host: host(group()), Status: 404} }},
		{"dead with an error that none has", func() store.Filter { return store.Filter{States: dead, Error: "no such error"} }},
		{"id", func() store.Filter { return store.Filter{IDs: []holdfast.TaskID{anyID()}} }},
		{"20 ids", func() store.Filter {
			var ids []holdfast.TaskID
			for range 20 {
				ids = append(ids, anyID())
			}
			return store.Filter{IDs: ids}
		}},
		{"unique key", func() store.Filter { return store.Filter{Unique: fmt.Sprint("key", anyID()/10*10)} }},
		{"tag of one task", func() store.Filter { return store.Filter{Tags: []string{fmt.Sprint("order:", anyID()/5*5)}} }},
		{"tag of thousands", func() store.Filter { return store.Filter{Tags: []string{fmt.Sprint("tenant:", rand.IntN(200))}} }},
		{"tag of a million", func() store.Filter { return store.Filter{Tags: []string{"all"}, Before: anyID()} }},
		{"dead with a tag of thousands", func() store.Filter {
			return store.Filter{States: dead, Tags: []string{fmt.Sprint("tenant:", rand.IntN(200))}}
		}},
		{"dead with a tag of a million", func() store.Filter { return store.Filter{States: dead, Tags: []string{"all"}} }},
		{"tag of a million and a type", func() store.Filter {
			return store.Filter{Tags: []string{"all"}, Type: fmt.Sprint("type", rand.IntN(20))}
		}},
		{"group with a tag of a million", func() store.Filter {
			return store.Filter{Fingerprint: fingerprint(group()), Tags: []string{"all"}}
		}},
		{"running", func() store.Filter { return store.Filter{States: []holdfast.State{holdfast.Running}} }},
		{"scan: a type without any", func() store.Filter { return store.Filter{Type: "none"} }},
		{"scan: payload", func() store.Filter { return store.Filter{Payload: absent} }},
		{"scan: payload, dead", func() store.Filter { return store.Filter{States: dead, Payload: absent} }},
		{"scan: payload, a tag of a million", func() store.Filter { return store.Filter{Tags: []string{"all"}, Payload: absent} }},
	} {
		b.Run(list.name, func(b *testing.B) {
			var times []time.Duration
			var passed holdfast.TaskID
			for b.Loop() {
				f := list.filter()
				began := time.Now()
				page, err := s.List(b.Context(), f)
				if err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(began))
				if page.Next != 0 && len(page.Tasks) < 50 {
					passed = holdfast.TaskID(m.Total) - page.Next
				}
			}
			slices.Sort(times)
			for _, percent := range []int{50, 95} {
				b.ReportMetric(float64(times[len(times)*percent/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", percent))
			}
			if passed > 0 {
				b.ReportMetric(float64(passed), "ids")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

package postgres

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// A part of a batch has all columns of its tasks.
func TestAPartOfABatchIsComplete(t *testing.T) {
	t.Parallel()
	tasks := make([]holdfast.NewTask, 4)
	for i := range tasks {
		n := fmt.Sprint(i)
		tasks[i] = holdfast.NewTask{
			Type: "t" + n, Queue: "q" + n, Payload: []byte(n), MaxAttempts: i + 1, Unique: "u" + n, Key: "k" + n, Tags: []string{n},
			Delay: time.Duration(i+1) * time.Second, At: time.UnixMicro(int64(i + 1)),
		}
	}
	whole, err := batchOf(tasks, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want, err := batchOf([]holdfast.NewTask{tasks[1], tasks[3]}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got := whole.part([]int{1, 3}); !reflect.DeepEqual(got, want) {
		t.Errorf("the part is\n%+v, want\n%+v", got, want)
	}
}

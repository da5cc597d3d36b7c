package ordered_test

import (
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/ordered"
)

func TestHolds(t *testing.T) {
	for _, test := range []struct {
		active       ordered.Active
		holds, dooms bool
	}{
		{ordered.Active{}, false, false},
		{ordered.Active{State: holdfast.Ready, Mark: ordered.Ordered}, true, false},
		{ordered.Active{State: holdfast.Ready, Mark: ordered.Ordered, Waits: true}, false, false},
		{ordered.Active{State: holdfast.Running, Mark: ordered.Ordered}, true, false},
		{ordered.Active{State: holdfast.Done, Mark: ordered.Ordered}, false, false},
		{ordered.Active{State: holdfast.Cancelled, Mark: ordered.Ordered}, false, false},
		{ordered.Active{State: holdfast.Archived, Mark: ordered.Dooms}, false, false},
		{ordered.Active{State: holdfast.Dead, Mark: ordered.Ordered}, true, false},
		{ordered.Active{State: holdfast.Dead, Mark: ordered.LetGo}, false, false},
		{ordered.Active{State: holdfast.Dead, Mark: ordered.Dooms}, true, true},
	} {
		if holds, dooms := test.active.Holds(); holds != test.holds || dooms != test.dooms {
			t.Errorf("%+v: Holds returned %t, %t; want %t, %t", test.active, holds, dooms, test.holds, test.dooms)
		}
	}
}

func TestPlaces(t *testing.T) {
	task := func(key string) holdfast.NewTask { return holdfast.NewTask{Type: "t", Key: key, Ordered: true} }
	tasks := []holdfast.NewTask{task("idle"), {Type: "t", Key: "idle"}, task("idle"), task("busy"), task("doomed"), task("waiting"), task("waiting")}
	places := ordered.Places(tasks, map[string]ordered.Key{
		"idle": {}, "busy": {Active: true}, "doomed": {Active: true, Doomed: true}, "waiting": {Waiting: true},
	})
	want := []ordered.Place{ordered.Leads, 0, ordered.Waits, ordered.Waits, ordered.Dies, ordered.Waits, ordered.Waits}
	if !slices.Equal(places, want) {
		t.Errorf("the places are %v, want %v", places, want)
	}
	if keys := ordered.Keys(tasks); !slices.Equal(keys, []string{"busy", "doomed", "idle", "waiting"}) {
		t.Errorf("the keys are %q", keys)
	}
}

func TestMoved(t *testing.T) {
	move := func(key string, event holdfast.Event, to holdfast.State) holdfast.Transition {
		return holdfast.Transition{OrderedKey: key, Event: event, To: to}
	}
	moves := []holdfast.Transition{
		move("b", holdfast.EventComplete, holdfast.Done), move("a", holdfast.EventRequeue, holdfast.Ready), move("b", holdfast.EventCancel, holdfast.Cancelled),
		move("refused", holdfast.EventComplete, holdfast.Done), move("retried", holdfast.EventRetry, holdfast.Ready), move("", holdfast.EventComplete, holdfast.Done),
	}
	for i := range moves {
		moves[i].Task = holdfast.TaskID(i + 1)
	}
	keys, ended := ordered.Moved(moves, []bool{true, true, true, false, true, true})
	if !slices.Equal(keys, []string{"a", "b"}) || !ended[1] || ended[2] || !ended[3] || ended[4] || ended[5] || ended[6] {
		t.Errorf("the keys are %q, and the ended tasks %v", keys, ended)
	}
}

func TestMarksAreTexts(t *testing.T) {
	for mark := range ordered.Dooms + 1 {
		text, err := mark.MarshalText()
		var read ordered.Mark
		if err != nil || read.UnmarshalText(text) != nil || read != mark {
			t.Errorf("mark %d: the text is %q, %v, and means %d", mark, text, err, read)
		}
	}
	if text, err := (ordered.Dooms + 1).MarshalText(); err == nil {
		t.Errorf("an unknown mark has the text %q", text)
	}
	if new(ordered.Mark).UnmarshalText([]byte("other")) == nil {
		t.Error("an unknown text is a mark")
	}
}

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
)

// runOnce adds tasks of a type that runs at most once, and gives this type to some of the other tasks. In half of the
// plans the janitors do not know the setting. Plans in which only queues are silent stay as they are: their tasks must
// start in time, and workers with this type have no buffer.
func (p *Plan) runOnce(r *rand.Rand) {
	if _, silence := p.onlySilence(); silence {
		return
	}
	p.Unaware = r.IntN(2) == 0
	for i := range p.Tasks {
		if t := &p.Tasks[i]; !t.Ordered && !t.Brief && t.Hangs == 0 && t.Target == "" && r.IntN(2) == 0 {
			t.Once = true
		}
	}
	by, poison := p.lastProducer(), p.faulty()
	for i := range 4 + r.IntN(9) {
		task := TaskPlan{
			Name: fmt.Sprint("on", i), At: between(r, 0, loadTime), By: by, Queue: queues[r.IntN(len(queues))], Takes: between(r, 0, 300*time.Millisecond), Once: true,
		}
		if r.IntN(3) == 0 {
			task.Takes = between(r, 0, 4*time.Second)
		}
		switch r.IntN(12) {
		case 0:
			task.Always = true
		case 1, 2:
			task.Fails, task.Panics = 1, r.IntN(2) == 0
		case 3:
			task.Defers = 1
		case 4:
			task.Poison = poison
		}
		task.Stubborn = r.IntN(10) == 0
		p.Tasks = append(p.Tasks, task)
	}
}

// once reports whether the plan has tasks that run at most once.
func (p *Plan) once() bool {
	return slices.ContainsFunc(p.Tasks, func(t TaskPlan) bool { return t.Once })
}

// forJanitors returns the settings of the janitors, given those of the other parts of a process.
func (p *Plan) forJanitors(s holdfast.SettingsSource) holdfast.SettingsSource {
	if p.Unaware {
		return unaware{s}
	}
	return s
}

// unaware are settings without AtMostOnce.
type unaware struct{ holdfast.SettingsSource }

// For implements holdfast.SettingsSource.
func (u unaware) For(taskType string) *holdfast.TypeSettings {
	settings := *u.SettingsSource.For(taskType)
	settings.Policy.AtMostOnce = false
	return &settings
}

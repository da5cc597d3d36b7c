package logs

import (
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
)

// Dead logs that a task has moved to the state dead, with what a person needs to find out why.
func Dead(log logrus.FieldLogger, task holdfast.Task, move holdfast.Transition) {
	log.WithFields(logrus.Fields{
		"task": task.ID, "type": task.Type, "lane": task.Lane, "attempts": move.Attempt, "failures": move.Failures,
		"class": move.Report.Class, "cause": move.Report.Error,
	}).Warn("task is dead")
}

package logs

import (
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
)

// Dead logs that a task is dead, with the data that a person needs to find the cause. A limited logger writes about one
// line a minute for each group.
func Dead(log logrus.FieldLogger, task holdfast.Task, move holdfast.Transition) {
	if move.Fingerprint != "" {
		log = log.WithField(groupKey, move.Fingerprint)
	}
	if traceID, _ := holdfast.TraceIDs(task.Trace); traceID != "" {
		log = log.WithField("trace_id", traceID)
	}
	log.WithFields(logrus.Fields{
		"task": task.ID, "type": task.Type, "queue": task.Queue, "attempts": move.Attempt, "failures": move.Failures,
		"class": move.Report.Class, "cause": move.Report.Error,
	}).Warn("task is dead")
}

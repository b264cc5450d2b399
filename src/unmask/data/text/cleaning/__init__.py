"""Documents cleaned by datatrove, in stages of tasks on one machine or many, and written as a corpus."""
